//! The only system call here that needs `unsafe`: a message to a socket's firmware and back.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `struct hsmp_message` of Linux, `arch/x86/include/uapi/asm/amd_hsmp.h`. There it is packed to
/// 4 bytes, which is how it lies anyway.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// The message's kind.
    pub id: u32,
    /// How many of `args` are sent.
    pub arguments: u16,
    /// How many of `args` come back.
    pub answers: u16,
    /// Arguments, and then answers.
    pub args: [u32; 8],
    /// The socket's number.
    pub socket: u16,
}

nix::ioctl_readwrite!(
    /// `HSMP_IOCTL_CMD`.
    hsmp_ioctl_cmd,
    0xf8,
    0,
    Message
);

/// Sends `message` through an open `/dev/hsmp`; the answer is in its `args`.
pub(super) fn send(device: BorrowedFd<'_>, message: &mut Message) -> io::Result<()> {
    // SAFETY: the descriptor is open for as long as it is borrowed, and the request's number says that the other
    // side reads and writes as many bytes as a `Message` has (the kernel copies no more, whatever file this is).
    // Each field is a number, valid with any bits.
    unsafe { hsmp_ioctl_cmd(device.as_raw_fd(), message) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn a_message_lies_as_the_kernel_has_it() {
        assert_eq!(size_of::<Message>(), 44);
        let offsets = [
            offset_of!(Message, id),
            offset_of!(Message, arguments),
            offset_of!(Message, answers),
            offset_of!(Message, args),
            offset_of!(Message, socket),
        ];
        assert_eq!(offsets, [0, 4, 6, 8, 40]);
        let request = nix::request_code_readwrite!(0xf8, 0, size_of::<Message>());
        assert_eq!(request as u32, 0xc02c_f800);
    }

    #[test]
    fn a_file_that_knows_no_messages_is_an_error() {
        use std::os::fd::AsFd;
        let file = tempfile::tempfile().unwrap();
        let mut message = Message::default();
        let error = send(file.as_fd(), &mut message).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(nix::libc::ENOTTY));
    }
}
