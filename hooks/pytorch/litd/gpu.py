"""The GPU of this process: its address, and its clock.

The address is found through torch's device properties, or through the driver's own library where
torch is too old to tell it.
"""

from __future__ import annotations

import ctypes
import logging
import time
from typing import Any, Protocol

log = logging.getLogger("litd")

ANCHORS = 5
"""So often the device's clock is compared with the host's; the tightest comparison counts."""


def address(torch: Any, index: int) -> str | None:
    """The PCI address of a device of this process, such as `0000:85:00.0`; or its UUID.

    `None` if neither can be found.
    """
    properties = torch.cuda.get_device_properties(index)
    if hasattr(properties, "pci_bus_id") and hasattr(properties, "pci_device_id"):
        return pci_address(
            getattr(properties, "pci_domain_id", 0),
            properties.pci_bus_id,
            properties.pci_device_id,
        )
    told = _from_driver(index, hip=is_rocm(torch))
    if told:
        return told.lower()
    uuid = getattr(properties, "uuid", None)
    return f"GPU-{uuid}" if uuid else None


def in_use(torch: Any) -> bool:
    """Whether this process uses a GPU already.

    To ask whether there is one would set up the driver: that takes memory and time, and forbids
    the script to use GPUs in processes that it forks later.
    """
    cuda = getattr(torch, "cuda", None)
    return cuda is not None and bool(cuda.is_initialized())


def pci_address(domain: int, bus: int, device: int) -> str:
    """The address as the kernel writes it."""
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def is_rocm(torch: Any) -> bool:
    """Whether torch was built for AMD's GPUs."""
    return bool(getattr(torch.version, "hip", None))


def _from_driver(index: int, *, hip: bool) -> str | None:
    """Asks the driver's library, which numbers devices as torch does."""
    library, function = (
        ("libamdhip64.so", "hipDeviceGetPCIBusId")
        if hip
        else ("libcuda.so.1", "cuDeviceGetPCIBusId")
    )
    text = ctypes.create_string_buffer(64)
    try:
        failed = getattr(ctypes.CDLL(library), function)(text, len(text), index)
    except (OSError, AttributeError) as error:
        log.debug("%s of %s: %s", function, library, error)
        return None
    return None if failed else text.value.decode(errors="replace")


def permit_captures(*, hip: bool) -> None:
    """What this thread asks the driver from now on ends no CUDA graph that another one captures.

    By default a query of an event in any thread makes a capture fail.
    """
    library, function = (
        ("libamdhip64.so", "hipThreadExchangeStreamCaptureMode")
        if hip
        else ("libcuda.so.1", "cuThreadExchangeStreamCaptureMode")
    )
    relaxed = ctypes.c_int(2)
    try:
        getattr(ctypes.CDLL(library), function)(ctypes.byref(relaxed))
    except (OSError, AttributeError) as error:
        log.debug("%s of %s: %s", function, library, error)


class Clock(Protocol):
    """The device's clock: marks in its present stream, and when it came to them."""

    def anchor(self) -> None:
        """Compares the clocks of device and host; waits until the device is idle."""

    def mark(self) -> tuple[Any, int] | None:
        """Puts a mark into the present stream; answers with it and the stream's number.

        `None` while the stream takes no marks, because it is captured into a graph.
        """

    def is_reached(self, mark: Any) -> bool:
        """Whether the device has come to a mark."""

    def time_ns(self, mark: Any) -> int:
        """When it came to a mark, by the host's clock: nanoseconds since 1970."""


class TorchClock:
    """`Clock` by torch's device events, on NVIDIA and AMD."""

    def __init__(self, torch: Any, index: int) -> None:
        self._cuda = torch.cuda
        self._device = torch.device("cuda", index)
        self._origin: Any = None
        self._origin_ns = 0
        self._streams: dict[int, int] = {}

    def anchor(self) -> None:
        """Compares the clocks of device and host; waits until the device is idle."""
        self._cuda.synchronize(self._device)
        tightest: int | None = None
        for _ in range(ANCHORS):
            before = time.time_ns()
            event = self._cuda.Event(enable_timing=True)
            event.record(self._cuda.current_stream(self._device))
            event.synchronize()
            width = time.time_ns() - before
            if tightest is None or width < tightest:
                tightest, self._origin, self._origin_ns = width, event, before + width // 2

    def mark(self) -> tuple[Any, int] | None:
        """Puts a mark into the present stream; `None` while that is captured into a graph."""
        if self._cuda.is_current_stream_capturing():
            return None
        stream = self._cuda.current_stream(self._device)
        event = self._cuda.Event(enable_timing=True)
        event.record(stream)
        handle = stream.cuda_stream
        return event, self._streams.setdefault(handle, len(self._streams))

    def is_reached(self, mark: Any) -> bool:
        """Whether the device has come to a mark."""
        return bool(mark.query())

    def time_ns(self, mark: Any) -> int:
        """When it came to a mark, by the host's clock: nanoseconds since 1970."""
        since: float = self._origin.elapsed_time(mark)
        return self._origin_ns + round(since * 1e6)
