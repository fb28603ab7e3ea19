//! The Kubernetes manifests: what they ask for, and the daemon in a container that has just that.

mod attach;
mod manifest;
mod page;
mod pod;

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::built::{built, repository};
use crate::tools::have;
use litd::config::Config;
use litd_api::{Mode, Status};
use manifest::{Manifest, documents, on_the_node};
use pod::{Container, Image, Pod};
use serde_json::{Value, json};

/// How long anything may take on a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// A user that is not root and not a container's.
const JOBS_USER: u32 = 65534;

/// The stand-in node's directory, in the container.
const RIG: &str = "/run/litd-rig";

/// A process that ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Tries until there is something.
fn until<T>(what: &str, mut attempt: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(it) = attempt() {
            return it;
        }
        assert!(start.elapsed() < PATIENCE, "{what}: not in time");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_api_would_take_the_manifests() {
    if !have(&["kubernetes-validate"]) {
        return;
    }
    let check = |objects: &[Value]| {
        let directory = tempfile::tempdir().expect("a directory");
        let files: Vec<PathBuf> = (0..)
            .zip(objects)
            .map(|(n, object)| {
                let file = directory.path().join(format!("{n}.yaml"));
                fs::write(&file, object.to_string()).expect("it is written");
                file
            })
            .collect();
        let output = Command::new("kubernetes-validate")
            .arg("--strict")
            .args(&files)
            .output()
            .expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.success(), said)
    };
    for manifest in [
        Manifest::base(),
        Manifest::nvidia(),
        Manifest::base().fleet(),
        Manifest::nvidia().fleet(),
        Manifest::nvidia().attach(),
    ] {
        let (good, said) = check(manifest.objects());
        assert!(good, "{said}");
    }
    let (good, said) = check(&manifest::read("attach/training.yaml"));
    assert!(good, "{said}");
    let mut wrong = Manifest::base().of("DaemonSet").clone();
    wrong["spec"]["template"]["spec"]["hostPid"] = json!(true);
    assert!(!check(&[wrong]).0, "the check sees nothing");
}

/// What `kubectl apply -k` would send; none, without kubectl.
fn kustomized(kustomization: &str) -> Option<Vec<Value>> {
    let directory = tempfile::tempdir().expect("a directory");
    let copied = Command::new("cp")
        .arg("-r")
        .arg(repository().join("deploy/kubernetes"))
        .arg(directory.path())
        .status();
    assert!(copied.expect("cp runs").success());
    fs::write(directory.path().join("kustomization.yaml"), kustomization).expect("it is written");
    let kubectl = Command::new("kubectl")
        .arg("kustomize")
        .arg(directory.path())
        .output();
    let Ok(output) = kubectl else {
        eprintln!("SKIPPED: kubectl is not installed");
        return None;
    };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{kustomization}: {errors}");
    Some(documents(&String::from_utf8_lossy(&output.stdout)))
}

#[test]
fn kubectl_makes_of_them_what_these_tests_look_at() {
    for (kustomization, manifest) in [
        ("resources: [kubernetes]", Manifest::base()),
        ("resources: [kubernetes/nvidia]", Manifest::nvidia()),
        (
            "resources: [kubernetes/nvidia]\ncomponents: [kubernetes/fleet]",
            Manifest::nvidia().fleet(),
        ),
        (
            "resources: [kubernetes]\ncomponents: [kubernetes/attach, kubernetes/fleet]",
            Manifest::base().attach().fleet(),
        ),
    ] {
        let Some(objects) = kustomized(kustomization) else {
            return;
        };
        assert_eq!(objects.len(), manifest.objects().len(), "{kustomization}");
        for object in manifest.objects() {
            assert!(objects.contains(object), "{kustomization}: {object}");
        }
    }
}

#[test]
fn a_pod_has_no_more_rights_than_are_named_here() {
    let rights = |manifest: &Manifest| {
        let pod = manifest.pod();
        assert_eq!(pod["automountServiceAccountToken"], false);
        assert_eq!(pod["containers"].as_array().map(Vec::len), Some(1));
        for other in ["hostNetwork", "hostIPC", "initContainers"] {
            assert!(pod[other].is_null(), "{other}");
        }
        let security = &pod["containers"][0]["securityContext"];
        assert_eq!(security["privileged"], false);
        assert_eq!(security["readOnlyRootFilesystem"], true);
        assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault");
        assert_eq!(security["capabilities"]["drop"], json!(["ALL"]));
        security["capabilities"]["add"].clone()
    };
    let base = Manifest::base();
    assert_eq!(rights(&base), json!(["DAC_READ_SEARCH", "SYS_PTRACE"]));
    assert_eq!(
        rights(&Manifest::nvidia()),
        json!(["DAC_READ_SEARCH", "SYS_PTRACE", "SYS_ADMIN"])
    );
    let hosts: Vec<&str> = base.pod()["volumes"]
        .as_array()
        .expect("volumes")
        .iter()
        .filter_map(|it| it["hostPath"]["path"].as_str())
        .collect();
    let expected = [
        "/sys/devices",
        "/run/litd-ingest",
        "/run/litd",
        "/var/lib/litd",
    ];
    assert_eq!(hosts, expected);
}

#[test]
fn a_training_pod_mounts_the_hooks_socket_and_not_the_control_socket() {
    let hooks = Config::default().shell.ingest.socket;
    let example = documents(&page::example("spec:")).remove(0);
    let training = &example["spec"];
    assert_eq!(
        training["containers"][0]["volumeMounts"][0]["readOnly"],
        true
    );
    for manifest in [Manifest::base(), Manifest::nvidia()] {
        let (pod, shell) = (manifest.pod(), manifest.config().shell);
        let ingest = on_the_node(pod, &shell.ingest.socket);
        assert!(ingest.is_some());
        assert_eq!(on_the_node(training, &hooks), ingest);
        assert_eq!(on_the_node(pod, &shell.control.socket), None);
        // All daemons of a node meet at its locks, and no training pod reaches them.
        let locks = shell.locks();
        assert_eq!(on_the_node(pod, &locks), Some(locks.clone()));
        let training = ingest.as_deref().and_then(Path::parent).expect("a place");
        assert!(!locks.starts_with(training) && !training.starts_with(&locks));
        let environment = pod["containers"][0]["env"].as_array().expect("a list");
        let control = json!({"name": "LITD_CONTROL", "value": shell.control.socket});
        assert!(environment.contains(&control), "{environment:?}");
    }
}

#[test]
fn a_container_beside_the_package_mounts_the_hooks_socket_and_not_the_control_socket() {
    let example = page::example("[ingest]");
    let shell = Config::parse(&example, Path::new("install.md")).expect("it is good");
    let shell = shell.shell;
    let directory = shell.ingest.socket.parent().expect("a directory");
    assert!(!shell.control.socket.starts_with(directory));
    let name = directory.strip_prefix("/run").expect("below /run");
    let unit = format!("[Service]\nRuntimeDirectory={}\n", name.display());
    assert_eq!(page::example("[Service]"), unit);
    let hooks = Config::default().shell.ingest.socket;
    let inside = hooks.parent().expect("a directory");
    let volume = format!("--volume {}:{}:ro", directory.display(), inside.display());
    assert!(page::example("docker run").contains(&volume), "{volume}");
}

#[test]
fn no_other_pod_has_a_part_in_the_probes_and_the_caps_have_time_to_go_back() {
    let manifest = Manifest::base();
    let pod = manifest.pod();
    let time = |it: &Value| it["terminationGracePeriodSeconds"].as_u64();
    assert!(time(pod) >= Some(30));
    for name in ["livenessProbe", "startupProbe"] {
        let probe = &pod["containers"][0][name];
        for other in ["httpGet", "tcpSocket", "grpc"] {
            assert!(probe[other].is_null(), "{name}: {other}");
        }
        assert!(probe["exec"]["command"].is_array(), "{name}");
        assert!(time(probe).or(time(pod)) >= Some(30), "{name}");
        // litctl's own patience: its message says more than the kubelet's.
        assert!(probe["timeoutSeconds"].as_u64() > Some(5), "{name}");
    }
}

#[test]
fn as_installed_it_observes() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("litd.toml");
    fs::write(&file, Manifest::base().configuration()).expect("it is written");
    let output = Command::new(env!("CARGO_BIN_EXE_litd"))
        .args(["--check-config", "--config"])
        .arg(&file)
        .output()
        .expect("litd runs");
    assert!(output.status.success(), "{output:?}");
    let configuration = Manifest::base().configuration().to_owned();
    assert!(configuration.contains("mode = \"observe\""));
}

/// A node of a cluster: hardware with a job on it, and the directories that pods mount.
struct Node {
    directory: tempfile::TempDir,
    _job: Running,
}

impl Node {
    fn start(programs: &Path) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        for name in [
            "configuration",
            "ingest",
            "run",
            "control",
            "state",
            "rig",
            "fleet",
        ] {
            fs::create_dir(directory.path().join(name)).expect("a directory");
        }
        let rig = directory.path().join("rig");
        let configuration = Manifest::base()
            .configuration()
            .replace("\"observe\"", "\"on\"\npolicy = \"gpu-realloc\"")
            .replace("[state]", "[state]\nlocks = \"/run/litd/devices\"");
        let configuration = format!(
            "{configuration}\n[settle]\nseconds = 0.0\niterations = 0\n[law.calibration]\nwarm_up = 5\n[law.detection]\nwindow = 1\n\
             [hardware]\nsimulated = \"{RIG}/hardware.sock\"\n"
        );
        let file = directory.path().join("configuration/litd.toml");
        fs::write(file, configuration).expect("it is written");
        let job = Command::new(programs.join("litd-rig-node"))
            .arg(&rig)
            .arg(directory.path().join("ingest/ingest.sock"))
            .spawn()
            .expect("the node starts");
        let node = Self {
            directory,
            _job: Running(job),
        };
        until("the node is there", || fs::read(rig.join("state")).ok());
        node
    }

    /// What its ledger says under a name.
    fn of(&self, name: &str) -> String {
        let state = fs::read_to_string(self.directory.path().join("rig/state"));
        let state = state.expect("it is replaced as a whole");
        let mut lines = state.lines().filter_map(|line| line.split_once('='));
        let found = lines.find(|(key, _)| *key == name);
        found.expect("the ledger has it").1.to_owned()
    }

    fn is_steered(&self) -> bool {
        self.of("held") != self.of("found")
    }

    /// What a pod here mounts.
    fn bound(&self) -> Vec<(String, PathBuf)> {
        let ours = [
            ("/etc/litd", "configuration"),
            ("/run/litd-ingest", "ingest"),
            ("/run/litd", "run"),
            ("/run/litd-control", "control"),
            ("/var/lib/litd", "state"),
            (RIG, "rig"),
        ]
        .map(|(place, name)| (place.to_owned(), self.directory.path().join(name)));
        let devices = ("/sys/devices".to_owned(), PathBuf::from("/sys/devices"));
        ours.into_iter().chain([devices]).collect()
    }

    fn pod<'a>(&self, image: &'a Image, spec: &Value) -> Pod<'a> {
        Pod {
            image,
            spec: spec.clone(),
            container: 0,
            program: Vec::new(),
            bound: self.bound(),
        }
    }

    /// Its second container, which keeps a lease alive for this long.
    fn fleet<'a>(&self, image: &'a Image, seconds: u32) -> Pod<'a> {
        let mut pod = self.pod(image, Manifest::base().fleet().pod());
        pod.container = 1;
        pod.bound = [
            ("/etc/litd-fleet", "fleet"),
            ("/run/litd-control", "control"),
        ]
        .map(|(place, name)| (place.to_owned(), self.directory.path().join(name)))
        .to_vec();
        let command = &mut pod.spec["containers"][1]["command"];
        let command = command.as_array_mut().expect("a program");
        for (name, value) in [("seconds", seconds), ("every", 1)] {
            let option = format!("--{name}=");
            let starts = |it: &&mut Value| it.as_str().is_some_and(|it| it.starts_with(&option));
            let it = command.iter_mut().find(starts).expect("an option");
            *it = json!(format!("{option}{value}"));
        }
        pod
    }

    /// Puts a key of a ConfigMap there.
    fn put(&self, path: &str, text: &str) {
        fs::write(self.directory.path().join(path), text).expect("it is written");
    }
}

/// Whether containers can be run here.
fn can_run() -> bool {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("SKIPPED: running a container needs root");
        return false;
    }
    if !Path::new(pod::SECCOMP).exists() {
        eprintln!("SKIPPED: there is no {}", pod::SECCOMP);
        return false;
    }
    have(&["buildah", "runc", "strip"])
}

/// The fields of a process's status in /proc.
fn status_of(pid: u32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let mut lines = status.lines().filter_map(|line| line.split_once(':'));
    let found = lines.find(|(key, _)| *key == name);
    found.expect("the kernel tells it").1.trim().to_owned()
}

/// Whether a place is mounted read-only, as a process sees it.
fn is_read_only(pid: u32, place: &str) -> bool {
    let mounts = fs::read_to_string(format!("/proc/{pid}/mountinfo")).expect("it runs");
    let mut fields = mounts.lines().map(|it| it.split(' ').collect::<Vec<_>>());
    let on_top = fields.rfind(|it| it[4] == place);
    on_top.expect("it is a mount")[5].starts_with("ro")
}

fn asked(container: &Container) -> Option<Status> {
    let output = container.exec(&["/usr/bin/litctl", "status", "--json"]);
    serde_json::from_slice(&output.stdout).ok()
}

/// Whether the daemon set's liveness probe succeeds.
fn is_alive(container: &Container) -> bool {
    let manifest = Manifest::base();
    let probe = &manifest.pod()["containers"][0]["livenessProbe"]["exec"];
    let command = probe["command"].as_array().expect("a program");
    let command: Vec<&str> = command.iter().filter_map(Value::as_str).collect();
    container.exec(&command).status.success()
}

#[test]
fn a_pod_steers_and_gives_back_with_the_rights_that_it_has() {
    if !can_run() {
        return;
    }
    let programs = built(&["litctl", "litd-rig-node"]);
    let image = Image::build(&programs);
    let node = Node::start(&programs);
    let pod = node.pod(&image, Manifest::base().pod());
    let mut first = pod.start();
    until("the pod steers", || node.is_steered().then_some(()));
    let pid = first.pid().expect("it runs");

    // CAP_DAC_READ_SEARCH and CAP_SYS_PTRACE.
    let rights = format!("{:016x}", 1_u64 << 2 | 1 << 19);
    for set in ["CapEff", "CapBnd"] {
        assert_eq!(status_of(pid, set), rights);
    }
    assert_eq!(status_of(pid, "NoNewPrivs"), "1");
    assert_eq!(status_of(pid, "Seccomp"), "2");
    for place in ["/", "/sys", "/etc/litd"] {
        assert!(is_read_only(pid, place), "{place}");
    }
    assert!(!is_read_only(pid, "/sys/devices"));
    let status = until("litctl in the pod is answered", || asked(&first));
    assert_eq!(status.jobs.len(), 1);
    assert!(is_alive(&first));

    // What training pods mount, in which any user may be root.
    let shared = fs::read_dir(node.directory.path().join("ingest")).expect("it is there");
    let shared: Vec<_> = shared.map(|it| it.expect("a name").file_name()).collect();
    assert_eq!(shared, ["ingest.sock"]);
    // And what litd-check on the node looks at.
    assert!(node.directory.path().join("run/baseline").exists());

    // It hangs.
    first.signal("STOP");
    assert!(!is_alive(&first));

    // Killed: nobody cleans up after it until its container starts anew.
    first.signal("KILL");
    assert!(!first.ended());
    assert!(node.is_steered());
    let mut second = pod.start();
    until("the next one steers", || {
        asked(&second).filter(|it| it.totals.adjustments > 0)
    });

    // The pod is deleted.
    second.signal("TERM");
    assert!(second.ended());
    until("the caps are back", || (!node.is_steered()).then_some(()));
    assert_eq!(node.of("violations"), "0");
}

#[test]
fn a_config_map_rules_and_the_fleet_container_has_no_rights() {
    if !can_run() {
        return;
    }
    let programs = built(&["litctl", "litd-rig-node"]);
    let image = Image::build(&programs);
    let node = Node::start(&programs);
    let litd = node.pod(&image, Manifest::base().pod()).start();
    until("the pod steers", || node.is_steered().then_some(()));
    let mode = || asked(&litd).map(|it| it.node.mode);
    let name = pod::NODE;
    node.put(
        "fleet/lease.toml",
        &format!("mode = \"on\"\n[nodes.{name}]\nmode = \"off\"\n"),
    );
    let fleet = node.fleet(&image, 3).start();
    until("it is off", || mode().filter(|it| *it == Mode::Off));
    until("the caps are back", || (!node.is_steered()).then_some(()));
    let pid = fleet.pid().expect("it runs");
    assert_eq!(status_of(pid, "CapBnd"), format!("{:016x}", 0));
    assert!(is_read_only(pid, "/"));
    // Killed, and the lease ends.
    fleet.signal("KILL");
    until("the configuration rules", || {
        mode().filter(|it| *it == Mode::Steer)
    });
    until("the pod steers again", || node.is_steered().then_some(()));
    // A key of the daemon's own ConfigMap is a kill switch.
    node.put("configuration/off", "");
    until("it is off", || mode().filter(|it| *it == Mode::Off));
    until("the caps are back", || (!node.is_steered()).then_some(()));
    assert_eq!(node.of("violations"), "0");
}

#[test]
fn the_fleets_config_map_is_one_that_litctl_follows() {
    let manifest = Manifest::base().fleet();
    let text = manifest.config_map("litd-fleet", "lease.toml");
    let file: toml::Table = text.parse().expect("it is TOML");
    // As installed nothing is moved, and all that it could say stands there.
    assert_eq!(file["mode"].as_str(), Some("observe"));
    for key in ["#budget = ", "#valid_until = ", "#[nodes."] {
        assert!(text.contains(key), "{key}");
    }
    let fleet = &manifest.pod()["containers"][1];
    let image = &manifest.pod()["containers"][0]["image"];
    assert_eq!(fleet["image"], *image);
    let file = Path::new(fleet["command"][3].as_str().expect("a file"));
    let mounts = fleet["volumeMounts"].as_array().expect("mounts");
    let mount = mounts.iter().find(|it| it["name"] == "fleet");
    let mount = mount.expect("the ConfigMap is mounted");
    assert_eq!(file.parent(), mount["mountPath"].as_str().map(Path::new));
    assert!(mount["subPath"].is_null(), "it would never change");
}

#[test]
fn each_right_is_needed() {
    if !can_run() {
        return;
    }
    let programs = built(&["litctl", "litd-rig-node"]);
    let image = Image::build(&programs);
    let node = Node::start(&programs);

    // Without the host's process ids no hook is believed.
    let mut spec = Manifest::base().pod().clone();
    spec["hostPID"] = json!(false);
    let blind = node.pod(&image, &spec).start();
    until("a hook is refused", || {
        asked(&blind).filter(|it| !it.totals.refused.is_empty())
    });
    assert!(!node.is_steered());

    // Who holds a device: another user's open files.
    let job = Command::new("sleep")
        .arg("600")
        .stdin(Stdio::null())
        .uid(JOBS_USER)
        .gid(JOBS_USER)
        .spawn();
    let job = Running(job.expect("sleep starts"));
    let sees = format!("[[ -e /proc/{}/fd/0 ]]", job.0.id());
    let both = ["DAC_READ_SEARCH", "SYS_PTRACE"];
    assert!(shell(&node, &image, &both, &sees), "both are not enough");
    for one in both {
        assert!(!shell(&node, &image, &[one], &sees), "{one} is enough");
    }

    // The caps' place can be opened for writing, other places of /sys can't.
    let cap = "exec 3>>/sys/devices/virtual/mem/null/uevent";
    assert!(shell(&node, &image, &both, cap), "caps can't be written");
    let other = "exec 3>>/sys/kernel/uevent_helper || exec 3>>/sys/kernel/profiling";
    assert!(!shell(&node, &image, &both, other), "/sys is writable");
}

/// Whether a script succeeds in the pod with these capabilities. The image has no shell: this
/// machine's is lent to it.
fn shell(node: &Node, image: &Image, capabilities: &[&str], script: &str) -> bool {
    let mut spec = Manifest::base().pod().clone();
    spec["containers"][0]["securityContext"]["capabilities"]["add"] = json!(capabilities);
    let mut pod = node.pod(image, &spec);
    let linked = Command::new("ldd").arg("/bin/bash").output();
    let linked = String::from_utf8(linked.expect("ldd runs").stdout).expect("paths");
    let paths = linked.split_whitespace().filter(|it| it.starts_with('/'));
    for path in paths.chain(["/bin/bash"]) {
        let place = format!("/tmp/shell/{}", path.rsplit_once('/').expect("a path").1);
        let source = fs::canonicalize(path).expect("it is there");
        pod.bound.push((place, source));
    }
    let mut places = pod.bound.iter().map(|(place, _)| place);
    let loader = places.rfind(|it| it.contains("/ld-linux"));
    let loader = loader.expect("bash has one").clone();
    let program = [
        &loader,
        "--library-path",
        "/tmp/shell",
        "/tmp/shell/bash",
        "-c",
        script,
    ];
    pod.program = program.map(str::to_owned).to_vec();
    pod.start().ended()
}
