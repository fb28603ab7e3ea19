//! Pods whose scripts know nothing of litd: the directories through which they meet it, and litd's pod with them.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use litd_api::Traceable;
use serde_json::{Value, json};

use super::manifest::{Manifest, on_the_node, read, variable};
use super::pod::Image;
use super::{JOBS_USER, Node, can_run, until};
use crate::built::{built, repository};

/// A pod has a /dev/shm and a network namespace of its own, which litd does not see.
#[test]
fn a_pod_without_a_hook_meets_litd_in_directories_of_the_node() {
    let training = read("attach/training.yaml").remove(0);
    let training = &training["spec"];
    let files = fs::read_to_string(repository().join("deploy/kubernetes/attach/fstab"));
    let files = files.expect("it is there");
    assert_eq!(variable(training, "KINETO_USE_DAEMON"), "1");
    for manifest in [Manifest::base().attach(), Manifest::nvidia().attach()] {
        let (pod, attach) = (manifest.pod(), manifest.config_with_attach().shell.attach);
        assert!(attach.kineto && !attach.kineto_samples);
        for (directory, name, is_read_only) in [
            (
                attach.kineto_directory,
                "KINETO_IPC_SOCKET_DIR",
                Value::Null,
            ),
            (attach.nccl_directory, "LITD_NCCL_DIRECTORY", json!(true)),
        ] {
            let directory = directory.expect("a directory");
            let of_litd = on_the_node(pod, &directory.join("file"));
            assert_eq!(of_litd, Some(directory.join("file")), "{name}");
            let of_training = Path::new(variable(training, name));
            assert_eq!(on_the_node(training, &of_training.join("file")), of_litd);
            // Clients make sockets there, and the plugin rings: by their paths, which are the same everywhere.
            assert_eq!(of_training, directory);
            let mounts = pod["containers"][0]["volumeMounts"].as_array();
            let mut mounts = mounts.expect("mounts").iter();
            let mount = mounts.find(|it| it["mountPath"] == variable(training, name));
            assert_eq!(mount.expect("a mount")["readOnly"], is_read_only, "{name}");
            // In shared memory of its own, and such as litd takes.
            let line = format!("tmpfs {} tmpfs mode=1777,size=", directory.display());
            assert!(files.lines().any(|it| it.starts_with(&line)), "{line}");
        }
    }
    let mounts = training["containers"][0]["volumeMounts"].as_array();
    assert!(
        mounts
            .expect("mounts")
            .iter()
            .all(|it| it["readOnly"].is_null())
    );
    // litd's own manifest leaves the ways off.
    let attach = Manifest::base().attach().config().shell.attach;
    assert!(!attach.kineto && attach.nccl_directory.is_none());
}

/// PyTorch's client of another user in another pod, as far as it is sockets: it says whether it was answered.
const CLIENT: &str = "
import os, socket, struct, sys, time
folder = sys.argv[1]
client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
client.bind(folder + '/dynoconfigclient1')
os.chmod(folder + '/dynoconfigclient1', 0o666)
client.settimeout(0.3)
poll = struct.pack('=Q32siiqiii', 28, b'req', 2, 3, 0, os.getpid(), 2, 1)
while True:
    time.sleep(0.5)
    try:
        client.sendto(poll, folder + '/dynolog')
        answer, sender = client.recvfrom(8192)
        print(len(answer), sender, flush=True)
    except OSError:
        pass
";

/// The pod's rights suffice: it answers a client of another user in the shared directory, and looks at rings.
#[test]
fn litds_pod_sees_processes_without_a_hook() {
    if !can_run() {
        return;
    }
    let shared = |place: &str| -> tempfile::TempDir {
        let directory = tempfile::Builder::new().tempdir_in(place);
        let directory = directory.expect("a directory");
        let mode = Permissions::from_mode(0o1777);
        fs::set_permissions(directory.path(), mode).expect("it is ours");
        directory
    };
    let (kineto, nccl) = (shared("/tmp"), shared("/dev/shm"));
    let programs = built(&["litctl", "litd-rig-node"]);
    let image = Image::build(&programs);
    let node = Node::start(&programs);
    let file = "configuration/litd.toml";
    let text = fs::read_to_string(node.directory.path().join(file)).expect("it is there");
    // Here both sides have the directory at this path.
    let directory = kineto.path().to_str().expect("a plain name");
    let on = format!(
        "{text}[attach]\nkineto = true\nkineto_directory = \"{directory}\"\nnccl_directory = \"/run/litd-nccl\"\n"
    );
    node.put(file, &on);
    let manifest = Manifest::base().attach();
    let mut pod = node.pod(&image, manifest.pod());
    let bound = |place: &str, source: &Path| (place.to_owned(), source.to_owned());
    let more: [(String, PathBuf); 3] = [
        bound("/run/litd-kineto", kineto.path()),
        bound(directory, kineto.path()),
        bound("/run/litd-nccl", nccl.path()),
    ];
    pod.bound.extend(more);
    let litd = pod.start();
    fs::write(nccl.path().join("nccl-1-1.ring"), "short").expect("it is written");
    until("litd's socket", || {
        kineto.path().join("dynolog").exists().then_some(())
    });
    let client = Command::new("/usr/bin/python3")
        .args(["-c", CLIENT, directory])
        .uid(JOBS_USER)
        .stdout(Stdio::piped())
        .spawn();
    let mut client = super::Running(client.expect("python3 starts"));
    let traceable = || -> Option<Traceable> {
        let output = litd.exec(&["/usr/bin/litctl", "trace", "--json"]);
        serde_json::from_slice(&output.stdout).ok()
    };
    let pid = client.0.id();
    let seen = until("the client", || {
        let known = traceable()?;
        let asks = known
            .processes
            .iter()
            .any(|it| (it.pid, it.uid) == (pid, JOBS_USER));
        let looked = known.rings.as_ref().is_some_and(|it| it.unclaimed == 1);
        (asks && looked).then_some(known)
    });
    assert_eq!(seen.troubles, [""; 0]);
    let rings = seen.rings.expect("it reads rings");
    assert_eq!(rings.trouble, None);
    let mut answer = String::new();
    let stdout = client.0.stdout.take().expect("it is piped");
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut answer)
        .expect("it says a line");
    // The head of a datagram, and nothing to do.
    assert_eq!(answer.trim(), format!("40 {directory}/dynolog"));
}
