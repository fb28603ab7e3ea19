//! Frames of the greatest length that are all column, all names or all versions take no memory
//! to speak of. One test in a process of its own: it looks at the most memory the process had.

// In tests a panic is the report.
#![allow(clippy::unwrap_used)]

use litd_proto::frame::MAX_FRAME;
use litd_proto::{FromHook, Limits, WireError};
use nix::sys::resource::{UsageWho, getrusage};
use prost::encode_length_delimiter;

fn peak_kib() -> i64 {
    getrusage(UsageWho::RUSAGE_SELF).unwrap().max_rss()
}

/// Makes `frame` one member, `member`, which is filled by `content` again and again.
fn fill(frame: &mut Vec<u8>, member: u8, head: &[u8], content: &[u8]) {
    // Keys and lengths have up to 5 bytes each.
    let body = MAX_FRAME - 32;
    frame.clear();
    frame.push(member << 3 | 2);
    let mut prefix = head.to_vec();
    if !head.is_empty() {
        encode_length_delimiter(body, &mut prefix).unwrap();
    }
    encode_length_delimiter(prefix.len() + body, frame).unwrap();
    frame.extend_from_slice(&prefix);
    let end = frame.len() + body;
    while frame.len() + content.len() <= end {
        frame.extend_from_slice(content);
    }
    // The rest is too short for the content: an unknown field's number, cut off.
    frame.resize(end, 0x7f);
}

#[test]
fn hostile_frames_take_no_memory() {
    let mut frame = vec![1; MAX_FRAME];
    let before = peak_kib();
    let hostile: [(&str, u8, &[u8], &[u8]); 5] = [
        ("a packed column", 2, b"\x3a", b"\x02"),
        ("a column element by element", 2, b"", b"\x20\x01"),
        ("empty names", 2, b"", b"\x1a\x00"),
        ("empty versions", 1, b"", b"\x4a\x00"),
        ("one long job", 1, b"\x12", b"x"),
    ];
    for (what, member, head, content) in hostile {
        fill(&mut frame, member, head, content);
        let fault = FromHook::decode(&frame, &Limits::default()).unwrap_err();
        assert!(matches!(fault, WireError::Limit { .. }), "{what}: {fault}");
        let grown = peak_kib() - before;
        assert!(grown < 1024, "{what}: {grown} KiB");
    }
}
