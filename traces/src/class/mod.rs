//! What kind of work a kernel does, told by its name.

use memchr::memmem;

use crate::timeline::KernelClass;

/// Collectives that are not called after NCCL or RCCL: custom all-reduces, multicast, DeepEP.
const COMMUNICATION: [&str; 3] = [
    "cross_device_reduce_",
    "multimem_all_reduce_kernel",
    "deep_ep::",
];
/// Copies and fills that ROCm before 7.2 lists as kernels.
const COPY: [&str; 3] = [
    "__amd_rocclr_copyBuffer",
    "__amd_rocclr_fillBuffer",
    "MEMORY_COPY_",
];

/// The class of a kernel with this name. (Copies by DMA engines have no kernel name: the trace
/// marks those itself.)
#[must_use]
pub fn class_of(name: &str) -> KernelClass {
    let bytes = name.as_bytes();
    // `nccl` and `rccl` in any case, without a copy of the name in lower case.
    let is_ccl = memchr::memchr2_iter(b'l', b'L', bytes).any(|last| {
        last.checked_sub(3)
            .and_then(|first| bytes.get(first..last))
            .is_some_and(|word| {
                word.eq_ignore_ascii_case(b"ncc") || word.eq_ignore_ascii_case(b"rcc")
            })
    });
    let contains = |word: &&str| memmem::find(bytes, word.as_bytes()).is_some();
    if is_ccl || COMMUNICATION.iter().any(contains) {
        KernelClass::Communication
    } else if COPY.iter().any(|word| name.starts_with(word)) {
        KernelClass::Copy
    } else {
        KernelClass::Computation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_class() {
        use KernelClass::{Communication, Computation, Copy};
        for (name, class) in [
            (
                "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)",
                Communication,
            ),
            ("void my::RCCL_thing", Communication),
            (
                "void vllm::cross_device_reduce_2stage<__hip_bfloat16, 8>",
                Communication,
            ),
            ("multimem_all_reduce_kernel", Communication),
            ("void deep_ep::intranode::dispatch<8>", Communication),
            ("__amd_rocclr_copyBuffer.kd", Copy),
            ("__amd_rocclr_fillBufferAligned", Copy),
            ("MEMORY_COPY_HOST_TO_DEVICE", Copy),
            ("void at::native::CatArrayBatchedCopy<float>", Computation),
            ("ccl", Computation),
            ("", Computation),
        ] {
            assert_eq!(class_of(name), class, "{name}");
        }
    }
}
