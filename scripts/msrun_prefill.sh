#!/usr/bin/env bash
# Prefill on ranks that you start with msrun yourself, on one host or on many.
#
#   one host:   bash scripts/msrun_prefill.sh CONFIG [WORKER_NUM] [MASTER_PORT] [LOG_DIR] [JOIN] \
#                   [CLUSTER_TIME_OUT]
#   many hosts: bash scripts/msrun_prefill.sh CONFIG WORKER_NUM LOCAL_WORKER MASTER_ADDR \
#                   MASTER_PORT NODE_RANK LOG_DIR [JOIN] [CLUSTER_TIME_OUT]
#
# WORKER_NUM (default 2) must equal parallel_config.pipeline_stage of CONFIG. On many hosts every
# host runs the command with its own NODE_RANK, 0 on the host of MASTER_ADDR, and starts
# LOCAL_WORKER ranks. Rank 0 listens at MASTER_PORT + 1 too: there the ranks meet.
# Results are written by rank 0, where CONFIG says (output_dir). Every rank logs to
# LOG_DIR/worker_N.log. When a rank is lost the others end within seconds and name it there.
#
# PYTHON names the interpreter (default: python3 of PATH). PIN_CORES=0 leaves ranks unpinned;
# without an Ascend device they get one core each, round robin.
set -euo pipefail

usage() { sed -n '2,18s/^# \{0,1\}//p' "$0"; exit 2; }
fail() { echo "msrun_prefill: $*" >&2; exit 2; }

[[ $# -ge 1 && $# -le 9 && $1 != -* ]] || usage
config=$1
[[ -f $config ]] || fail "CONFIG: no file '$config'"

if [[ $# -le 6 ]]; then
    worker_num=${2:-2} local_worker=${2:-2} master_addr=127.0.0.1 master_port=${3:-8118}
    node_rank=0 log_dir=${4:-output/msrun_log} join=${5:-True} time_out=${6:-600}
else
    worker_num=$2 local_worker=$3 master_addr=$4 master_port=$5
    node_rank=$6 log_dir=$7 join=${8:-True} time_out=${9:-600}
fi

for pair in "WORKER_NUM $worker_num" "LOCAL_WORKER $local_worker" "MASTER_PORT $master_port" \
    "NODE_RANK $node_rank" "CLUSTER_TIME_OUT $time_out"; do
    [[ ${pair#* } =~ ^[0-9]+$ ]] || fail "${pair% *}: '${pair#* }' is not a number"
done
[[ $join == True || $join == False ]] || fail "JOIN: '$join'; allowed: True, False"
((master_port >= 1024 && master_port < 65535)) || fail "MASTER_PORT: $master_port; allowed: 1024 to 65534"
((local_worker >= 1 && local_worker <= worker_num)) || fail "LOCAL_WORKER: $local_worker of $worker_num"

if ((node_rank == 0)); then
    for port in "$master_port" $((master_port + 1)); do
        if (exec 3<>"/dev/tcp/$master_addr/$port") 2>/dev/null; then
            fail "MASTER_PORT: $master_addr:$port is taken; try another one"
        fi
    done
fi

bin_dir=$(dirname "$("${PYTHON:-python3}" -c 'import sys; print(sys.executable)')")
[[ -x $bin_dir/msrun ]] || fail "no msrun in $bin_dir; try: pip install mindspore"
root=$(cd "$(dirname "$0")/.." && pwd)
export PATH=$bin_dir:$PATH PYTHONPATH=$root${PYTHONPATH:+:$PYTHONPATH}
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
export GLIBC_TUNABLES=${GLIBC_TUNABLES:-glibc.malloc.hugetlb=1}  # large tensors in huge pages

options=(--worker_num="$worker_num" --local_worker_num="$local_worker"
    --master_addr="$master_addr" --master_port="$master_port" --node_rank="$node_rank"
    --log_dir="$log_dir" --join="$join" --cluster_time_out="$time_out")
if [[ ${PIN_CORES:-1} != 0 ]] && ! compgen -G '/dev/davinci[0-9]*' >/dev/null; then
    options+=(--bind_core="$("$bin_dir/python3" -m vpp_ms.engine.cores "$local_worker")")
fi
exec "$bin_dir/msrun" "${options[@]}" python3 -m vpp_ms.engine.worker --config "$config"
