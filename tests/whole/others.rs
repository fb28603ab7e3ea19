//! Other users on the node. Only root can become one, so these tests need it; a second process
//! of this test program plays the user.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use litd_proto::client::Client;
use litd_proto::{FromHook, RefusalCode, ToHook};
use litd_rig::JobSpec;
use nix::unistd::{Gid, Group, geteuid};

use crate::control;
use crate::stand::{SOON, Stand, quick, wait_for};

const NOBODY: u32 = 65_534;

/// What the other process is to do, by environment variable.
const ERRAND: &str = "LITD_TEST_ERRAND";
const SOCKET: &str = "LITD_TEST_SOCKET";
const CONTENT: &str = "LITD_TEST_CONTENT";

/// Not a test by itself: what [`as_user`] runs in a process of another user.
#[test]
fn errand_of_another_user() {
    let Ok(errand) = std::env::var(ERRAND) else {
        return;
    };
    let socket = std::env::var(SOCKET).unwrap();
    let content = std::env::var(CONTENT).unwrap();
    let socket = Path::new(&socket);
    match errand.as_str() {
        "ask" => {
            let (method, path, body) = match content.as_str() {
                "" => ("GET", "/v1/status", ""),
                command => ("POST", "/v1/command", command),
            };
            match control::ask(socket, method, path, body) {
                Ok((code, _)) => println!("answer {code}"),
                Err(error) => println!("answer {:?}", error.kind()),
            }
        }
        _ => {
            let mut client = Client::connect(socket).unwrap();
            println!("process {}", std::process::id());
            // The test makes this process a holder of the GPU before it lets it go on.
            let go = Path::new(&content).with_extension("go");
            wait_for("go", || go.exists());
            let hello = fs::read(&content).unwrap();
            client.send_bytes(&hello).unwrap();
            match client.receive(Duration::from_secs(10)).unwrap() {
                Some(ToHook::Refusal(refusal)) => println!("answer {:?}", refusal.code),
                other => println!("answer {other:?}"),
            }
        }
    }
}

fn as_user(uid: u32, gid: u32, errand: &str, socket: &Path, content: &str) -> Command {
    // The path to the program may not be open to others; this one is.
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--exact", "others::errand_of_another_user", "--nocapture"])
        .env(ERRAND, errand)
        .env(SOCKET, socket)
        .env(CONTENT, content)
        .current_dir("/")
        .gid(gid)
        .uid(uid);
    command
}

fn answer(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout);
    let answer = text
        .lines()
        .find_map(|line| Some(line.split_once("answer ")?.1.to_owned()));
    answer.unwrap_or_else(|| panic!("{output:?}"))
}

fn is_root() -> bool {
    if !geteuid().is_root() {
        eprintln!("SKIPPED: only root can be another user");
    }
    geteuid().is_root()
}

fn open(stand: &Stand) {
    let directory = &stand.rig.layout().directory;
    fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn another_users_process_is_not_let_into_a_job_even_if_it_holds_the_gpu() {
    if !is_root() {
        return;
    }
    let mut stand = Stand::real(&quick("gpu-realloc"));
    open(&stand);
    // A job of two ranks, one of which is here; the other one comes from somebody else.
    let own = std::process::id();
    stand.rig.hardware().set_holders(1, vec![1]);
    let mut job = stand.rig.attach(JobSpec::new("train", [0, 1])).unwrap();
    assert!(job.welcome(SOON).is_err());
    let mut frame = Vec::new();
    let hello = FromHook::Hello(job.hello(1).unwrap()).encode();
    litd_proto::frame::write(&mut frame, &hello).unwrap();
    let content = stand.rig.layout().directory.join("hello");
    fs::write(&content, frame).unwrap();
    fs::set_permissions(&content, Permissions::from_mode(0o644)).unwrap();
    let ingest = stand.rig.layout().ingest();
    let mut child = as_user(NOBODY, NOBODY, "hello", &ingest, content.to_str().unwrap());
    let child = child.stdout(std::process::Stdio::piped()).spawn().unwrap();
    stand.rig.hardware().set_holders(1, vec![own, child.id()]);
    fs::write(content.with_extension("go"), "").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(answer(&output), format!("{:?}", RefusalCode::OtherUser));
    assert_eq!(stand.counted("other_user"), 1);
    assert_eq!(stand.job_status("train").ranks.len(), 1);
    assert!(stand.rig.ledger().is_empty());
    assert_eq!(stand.terminate(), Some(0));
}

#[test]
fn the_control_socket_reads_for_one_group_and_commands_for_another() {
    if !is_root() {
        return;
    }
    // Two groups that there are; which ones does not matter.
    let gid = |name: &str| Group::from_name(name).ok().flatten().map(|group| group.gid);
    let (Some(readers), Some(admins)) = (gid("daemon"), gid("adm")) else {
        eprintln!("SKIPPED: there are no groups daemon and adm");
        return;
    };
    let groups = "control.read_group = \"daemon\"\ncontrol.admin_group = \"adm\"\n";
    let stand = Stand::real(&format!("{}{groups}", quick("gpu-realloc")));
    open(&stand);
    let control = stand.rig.layout().control();
    let there = fs::metadata(&control).unwrap();
    assert_eq!(
        (there.mode() & 0o777, there.gid()),
        (0o660, readers.as_raw())
    );
    let ask = |gid: Gid, content: &str| {
        let mut command = as_user(NOBODY, gid.as_raw(), "ask", &control, content);
        answer(&command.output().unwrap())
    };
    let command = "{\"command\":\"forget\"}";
    assert_eq!(ask(readers, ""), "200");
    assert_eq!(ask(readers, command), "403");
    let stranger = Gid::from_raw(NOBODY);
    assert_eq!(ask(stranger, ""), "PermissionDenied");
    // An administrator is one of the readers too; here it is enough that the socket is open.
    fs::set_permissions(&control, Permissions::from_mode(0o666)).unwrap();
    assert_eq!(ask(stranger, command), "403");
    assert_eq!(ask(admins, command), "200");
    // Who it was is told, and of those who may not there is nothing to tell.
    let told = stand.events(litd_api::EventKind::Command);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with(&format!("user {NOBODY}")), "{told:?}");
    let mut stand = stand;
    assert_eq!(stand.terminate(), Some(0));
}
