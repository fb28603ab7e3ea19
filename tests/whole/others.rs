//! Other users on the node: one user's job is no other user's, and the control socket tells groups
//! apart.

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use litd_rig::JobSpec;
use nix::unistd::geteuid;

use crate::stand::{SOON, Stand, quick};
use crate::users::{User, group, is_root, open};

const NOBODY: u32 = 65_534;

#[test]
fn another_users_process_is_not_let_into_a_job_even_if_it_holds_the_gpu() {
    if !is_root() {
        return;
    }
    let mut stand = Stand::real(&quick("gpu-realloc"));
    open(&stand.rig.layout().directory);
    // A job of two ranks, one of which is here; the other one comes from somebody else.
    stand.rig.hardware().set_holders(1, vec![1]);
    let mut job = stand.rig.attach(JobSpec::new("train", [0, 1])).unwrap();
    assert!(job.welcome(SOON).is_err());
    let mut other = User::new(NOBODY);
    let hello = job.hello(1).unwrap();
    stand.rig.hardware().set_holders(1, vec![other.pid()]);
    // It is a job of its own, which waits for another rank as this one does.
    let answer = other.greet(&stand.rig.layout().ingest(), hello);
    assert_eq!(answer, Ok(()));
    let own = format!("user-{NOBODY}/train");
    for (name, uid) in [("train", geteuid().as_raw()), (own.as_str(), NOBODY)] {
        let job = stand.job_status(name);
        assert_eq!((job.uid, job.ranks.len()), (uid, 1), "{name}");
    }
    assert!(stand.rig.ledger().is_empty());
    assert_eq!(stand.terminate(), Some(0));
}

#[test]
fn the_control_socket_reads_for_one_group_and_commands_for_another() {
    if !is_root() {
        return;
    }
    let (Some(readers), Some(admins)) = (group("daemon"), group("adm")) else {
        return;
    };
    let groups = "control.read_group = \"daemon\"\ncontrol.admin_group = \"adm\"\n";
    let stand = Stand::real(&format!("{}{groups}", quick("gpu-realloc")));
    open(&stand.rig.layout().directory);
    let control = stand.rig.layout().control();
    let there = fs::metadata(&control).unwrap();
    assert_eq!((there.mode() & 0o777, there.gid()), (0o660, readers));
    let ask = |gid: u32, command: &str| {
        let mut user = User::in_group(NOBODY, gid);
        match command {
            "" => user.ask(&control, "GET", "/v1/status", ""),
            command => user.ask(&control, "POST", "/v1/command", command),
        }
    };
    let command = "{\"command\":\"forget\"}";
    assert_eq!(ask(readers, ""), "200");
    assert_eq!(ask(readers, command), "403");
    let stranger = NOBODY;
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
