"""The GEMM rate of one core: what a perfect prefill would reach. Prints GFLOP/s.

OMP_NUM_THREADS=1 taskset -c 0 python benchmarks/gemm_rate.py
"""

from __future__ import annotations

import time
from statistics import median

import mindspore as ms
import numpy as np
from mindspore import nn, ops


class Product(nn.Cell):
    def __init__(self) -> None:
        super().__init__()
        self.matmul = ops.MatMul()

    def construct(self, x_MK: ms.Tensor, w_KN: ms.Tensor) -> ms.Tensor:
        return self.matmul(x_MK, w_KN)


def main(rows: int = 1024, inner: int = 1024, columns: int = 1024) -> None:
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    ms.runtime.dispatch_threads_num(1)
    product = Product()
    x_MK = ms.Tensor(np.random.rand(rows, inner).astype(np.float32))
    w_KN = ms.Tensor(np.random.rand(inner, columns).astype(np.float32))
    product(x_MK, w_KN).asnumpy()
    rates = []
    for _ in range(30):
        start_s = time.perf_counter()
        for _ in range(5):
            result = product(x_MK, w_KN)
        result.asnumpy()
        rates.append(5 * 2e-9 * rows * inner * columns / (time.perf_counter() - start_s))
    print(median(rates))


if __name__ == "__main__":
    main()
