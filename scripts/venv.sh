# Sourced by quickstart.sh and test.sh: a virtual environment with a Python that MindSpore has
# wheels for, and the checkout installed into it once per version of setup.py.

# The first Python 3.10 to 3.12 that can make a virtual environment.
find_python() {
    local candidate
    for candidate in python3.11 python3.12 python3.10 python3; do
        if "$candidate" -c 'import sys, venv, ensurepip
sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 13))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    echo "vpp_ms needs Python 3.10, 3.11 or 3.12 with the venv module, and none was found." >&2
    echo "On Debian or Ubuntu: sudo apt-get install python3 python3-venv" >&2
    return 1
}

# make_venv DIR
make_venv() {
    [ -x "$1/bin/python" ] && "$1/bin/python" -m pip --version >/dev/null 2>&1 && return
    local python
    python=$(find_python)
    echo "making $1 with $("$python" --version)"
    "$python" -m venv --clear "$1"
}

# install_into DIR REQUIREMENT: editable, so that the checkout is what runs.
install_into() {
    local stamp="$1/installed" wanted
    wanted="$2 $(cksum setup.py) $PWD"
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && return
    echo "installing vpp_ms and what it needs into $1 (a few minutes the first time)"
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check --editable "$2"
    echo "$wanted" >"$stamp"
}
