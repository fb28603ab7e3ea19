//! The client against a listener of one's own.

use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant};

use litd_proto::client::{Client, ClientError};
use litd_proto::{Bye, Directive, FromHook, Limits, ToHook, frame};

const LONG: Duration = Duration::from_secs(60);

fn pair() -> (Client, UnixStream) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ingest.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let client = Client::connect(&path).unwrap();
    (client, listener.accept().unwrap().0)
}

fn directive(first: u64) -> ToHook {
    ToHook::Directive(Directive {
        first,
        period: 10,
        pause: false,
    })
}

#[test]
fn messages_go_both_ways() {
    let (mut client, mut litd) = pair();
    let bye = FromHook::Bye(Bye {
        reason: "done".into(),
    });
    client.send(&bye).unwrap();
    let mut bytes = [0; 12];
    litd.read_exact(&mut bytes).unwrap();
    assert_eq!(bytes[..4], 8_u32.to_le_bytes());
    let decoded = FromHook::decode(&bytes[4..], &Limits::default());
    assert_eq!(decoded, Ok(bye));

    // Three answers, of which the third comes in two parts.
    let mut answers = Vec::new();
    for first in [1, 2, 3] {
        frame::write(&mut answers, &directive(first).encode()).unwrap();
    }
    let (whole, rest) = answers.split_at(answers.len() - 3);
    litd.write_all(whole).unwrap();
    for first in [1, 2] {
        assert_eq!(client.receive(LONG).unwrap(), Some(directive(first)));
    }
    let soon = Duration::from_millis(20);
    let asked = Instant::now();
    assert_eq!(client.receive(soon).unwrap(), None);
    assert!(asked.elapsed() >= soon);
    assert_eq!(client.receive(Duration::ZERO).unwrap(), None);
    litd.write_all(rest).unwrap();
    assert_eq!(client.receive(LONG).unwrap(), Some(directive(3)));
}

#[test]
fn the_end_and_garbage_are_told_apart() {
    let (mut client, litd) = pair();
    drop(litd);
    assert!(matches!(client.receive(LONG), Err(ClientError::Closed)));

    let (mut client, mut litd) = pair();
    litd.write_all(b"HTTP/1.1 400").unwrap();
    assert!(matches!(client.receive(LONG), Err(ClientError::Frame(_))));

    let (mut client, mut litd) = pair();
    litd.write_all(b"\x01\x00\x00\x00\x07").unwrap();
    assert!(matches!(client.receive(LONG), Err(ClientError::Wire(_))));
}

#[test]
fn nobody_there_is_said_with_the_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ingest.sock");
    let fault = Client::connect(&path).unwrap_err().to_string();
    assert!(fault.contains(path.to_str().unwrap()), "{fault}");
}
