//! The daemon's container as a node would run it: the image, built from its file, under runc with
//! the rights and mounts that the manifest gives it and those that the kubelet adds. The cluster's
//! part is played; the kernel's is not.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use crate::built::repository;

/// What the kubelet hides and guards in every container that is not privileged (Kubernetes,
/// pkg/securitycontext, the default of `procMount`).
const MASKED: [&str; 10] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The system call filter that containers have by default, as Debian ships it. `RuntimeDefault` is
/// made of the same rules.
pub const SECCOMP: &str = "/usr/share/containers/seccomp.json";

/// The name that the cluster has for the node.
pub const NODE: &str = "gpu-node-17";

/// litd's image, built and unpacked in a directory that is thrown away.
pub struct Image {
    directory: tempfile::TempDir,
    root: PathBuf,
    config: Value,
}

impl Image {
    /// Builds it of these programs.
    pub fn build(programs: &Path) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let context = directory.path().join("context");
        fs::create_dir(&context).expect("a directory");
        said(
            Command::new(repository().join("deploy/container/build"))
                .arg("--programs")
                .arg(programs)
                .arg("--output")
                .arg(&context),
        );
        let mut image = Self {
            directory,
            root: PathBuf::new(),
            config: Value::Null,
        };
        image.buildah(
            &["build", "--quiet", "--isolation=chroot", "--tag=litd"],
            &context,
        );
        let container = image.buildah(&["from", "--pull-never"], "litd");
        image.root = PathBuf::from(image.buildah(&["mount"], &container));
        let inspected = image.buildah(&["inspect"], &container);
        let inspected: Value = serde_json::from_str(&inspected).expect("buildah says JSON");
        image.config = inspected["OCIv1"]["config"].clone();
        image
    }

    fn buildah(&self, arguments: &[&str], last: impl AsRef<std::ffi::OsStr>) -> String {
        let at = |name| self.directory.path().join(name);
        said(
            Command::new("buildah")
                .args(["--storage-driver=vfs", "--root"])
                .arg(at("store"))
                .arg("--runroot")
                .arg(at("run"))
                .args(arguments)
                .arg(last),
        )
    }
}

/// A container of a pod, and where the host's directories of its volumes are.
pub struct Pod<'a> {
    /// What runs in it.
    pub image: &'a Image,
    /// The pod as the manifest has it.
    pub spec: Value,
    /// Which of its containers.
    pub container: usize,
    /// What to run instead of the image's program.
    pub program: Vec<String>,
    /// Places in the container and what is bound there, for the volumes of the manifest instead of
    /// what it names (configuration and the host's directories), and besides.
    pub bound: Vec<(String, PathBuf)>,
}

impl Pod<'_> {
    fn container(&self) -> &Value {
        &self.spec["containers"][self.container]
    }

    /// Its description for runc (the OCI's runtime specification).
    fn bundle(&self) -> Value {
        let security = &self.container()["securityContext"];
        let capabilities = self.capabilities();
        let mut namespaces = vec!["mount", "uts", "ipc", "network"];
        if self.spec["hostPID"] != true {
            namespaces.push("pid");
        }
        let namespaces: Vec<Value> = namespaces.iter().map(|it| json!({ "type": it })).collect();
        let limits = &self.container()["resources"]["limits"];
        let (memory, cpu) = (number(&limits["memory"], "Mi"), number(&limits["cpu"], "m"));
        let program = match self.program.is_empty() {
            true if self.container()["command"].is_array() => self.container()["command"].clone(),
            true => self.image.config["Entrypoint"].clone(),
            false => json!(self.program),
        };
        json!({
            "ociVersion": "1.0.2",
            "root": {
                "path": self.image.root,
                "readonly": security["readOnlyRootFilesystem"],
            },
            "process": {
                "user": {"uid": security["runAsUser"], "gid": 0},
                "cwd": "/",
                "args": program,
                "env": self.environment(),
                "capabilities": {
                    "bounding": capabilities,
                    "effective": capabilities,
                    "permitted": capabilities,
                },
                "noNewPrivileges": security["allowPrivilegeEscalation"] == false,
            },
            "mounts": self.mounts(),
            "linux": {
                "namespaces": namespaces,
                "maskedPaths": MASKED,
                "readonlyPaths": READ_ONLY,
                "seccomp": seccomp(&capabilities),
                "resources": {
                    "devices": [{"allow": false, "access": "rwm"}],
                    "memory": {"limit": memory << 20},
                    "cpu": {"quota": cpu * 100, "period": 100_000},
                },
            },
        })
    }

    /// The image's, and what the manifest adds.
    fn environment(&self) -> Vec<String> {
        let text = |it: &Value| it.as_str().expect("a text").to_owned();
        let images = self.image.config["Env"].as_array().into_iter().flatten();
        let ours = self.container()["env"].as_array().into_iter().flatten();
        let value = |it: &Value| match it["valueFrom"]["fieldRef"]["fieldPath"].as_str() {
            Some("spec.nodeName") => NODE.to_owned(),
            _ => text(&it["value"]),
        };
        let ours = ours.map(|it| format!("{}={}", text(&it["name"]), value(it)));
        images.map(text).chain(ours).collect()
    }

    fn capabilities(&self) -> Vec<String> {
        let capabilities = &self.container()["securityContext"]["capabilities"];
        assert_eq!(capabilities["drop"], json!(["ALL"]));
        let added = capabilities["add"].as_array().into_iter().flatten();
        let name = |it: &Value| format!("CAP_{}", it.as_str().expect("a name"));
        added.map(name).collect()
    }

    fn mounts(&self) -> Vec<Value> {
        let filesystem = |place: &str, kind: &str, options: &[&str]| json!({"destination": place, "type": kind, "source": kind, "options": options});
        let mut mounts = vec![
            filesystem("/proc", "proc", &["nosuid", "noexec", "nodev"]),
            filesystem("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755"]),
            filesystem("/sys", "sysfs", &["nosuid", "noexec", "nodev", "ro"]),
        ];
        let volumes = self.container()["volumeMounts"].as_array().expect("mounts");
        let read_only = |place: &str| {
            let of = |it: &&Value| it["mountPath"] == *place;
            volumes
                .iter()
                .find(of)
                .is_some_and(|it| it["readOnly"] == true)
        };
        for volume in volumes {
            let place = volume["mountPath"].as_str().expect("a place");
            let bound = self.bound.iter().any(|(it, _)| it == place);
            assert!(bound, "nothing is bound at {place}");
        }
        mounts.extend(self.bound.iter().map(|(place, source)| {
            let access = if read_only(place) { "ro" } else { "rw" };
            json!({
                "destination": place,
                "type": "bind",
                "source": source,
                "options": ["rbind", "rprivate", access],
            })
        }));
        mounts
    }

    /// Starts it.
    pub fn start(&self) -> Container {
        static STARTED: AtomicUsize = AtomicUsize::new(0);
        let number = STARTED.fetch_add(1, Ordering::Relaxed);
        // Control groups of the machine have this name, too.
        let name = format!("litd-test-{}-{number}", std::process::id());
        let bundle = self.image.directory.path().join(&name);
        fs::create_dir(&bundle).expect("a directory");
        fs::write(bundle.join("config.json"), self.bundle().to_string()).expect("it is written");
        let state = self.image.directory.path().join("runc");
        let mut runc = Command::new("runc");
        let runc = runc.current_dir(&bundle).arg("--root").arg(&state);
        let runc = runc.args(["run", "--pid-file", "pid", &name]).spawn();
        Container {
            runc: runc.expect("runc starts"),
            name,
            bundle,
            state,
        }
    }
}

/// The number of a quantity in this unit: Kubernetes' `128Mi`, `500m`.
fn number(quantity: &Value, unit: &str) -> u64 {
    let number = quantity.as_str().and_then(|it| it.strip_suffix(unit));
    let number = number.and_then(|it| it.parse().ok());
    number.expect("a quantity in this unit")
}

/// A container that runs. It ends with this.
pub struct Container {
    runc: Child,
    name: String,
    bundle: PathBuf,
    state: PathBuf,
}

impl Container {
    /// The process id of its program, as the host has it; none until runc has started it.
    pub fn pid(&self) -> Option<u32> {
        let pid = fs::read_to_string(self.bundle.join("pid"));
        pid.ok()?.trim().parse().ok()
    }

    /// What a program says that is run inside, as `kubectl exec` would.
    pub fn exec(&self, program: &[&str]) -> Output {
        let output = self.runc("exec").arg(&self.name).args(program).output();
        output.expect("runc runs")
    }

    /// Sends it a signal, as the kubelet would.
    pub fn signal(&self, signal: &str) {
        said(self.runc("kill").args([&self.name, signal]));
    }

    /// Waits until its program has ended; whether that was with success.
    pub fn ended(&mut self) -> bool {
        self.runc.wait().expect("it is ours").success()
    }

    fn runc(&self, command: &str) -> Command {
        let mut runc = Command::new("runc");
        runc.arg("--root").arg(&self.state).arg(command);
        runc
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.runc("delete").args(["--force", &self.name]).output();
        let _ = self.runc.wait();
    }
}

/// The rules for a process with these capabilities, in the form that runc wants.
fn seccomp(capabilities: &[String]) -> Value {
    let text = fs::read_to_string(SECCOMP).expect("buildah's package has it");
    let profile: Value = serde_json::from_str(&text).expect("it is JSON");
    let has = |list: &Value| {
        let mut list = list
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        list.any(|it| capabilities.iter().any(|capability| capability == it))
    };
    let here = if cfg!(target_arch = "aarch64") {
        "arm64"
    } else {
        "amd64"
    };
    let applies = |rule: &&Value| {
        let (includes, excludes) = (&rule["includes"], &rule["excludes"]);
        let arches = includes["arches"].as_array();
        (includes["caps"].is_null() || has(&includes["caps"]))
            && !has(&excludes["caps"])
            && arches.is_none_or(|it| it.iter().any(|arch| arch == here))
    };
    let rules = profile["syscalls"].as_array().expect("rules").iter();
    let rules: Vec<Value> = rules
        .filter(applies)
        .map(|rule| {
            let wanted = ["names", "action", "args", "errnoRet"];
            let kept = wanted.iter().filter(|key| !rule[**key].is_null());
            kept.map(|key| ((*key).to_owned(), rule[*key].clone()))
                .collect()
        })
        .collect();
    json!({
        "defaultAction": profile["defaultAction"],
        "defaultErrnoRet": profile["defaultErrnoRet"],
        "syscalls": rules,
    })
}

/// What a program says on its standard output; it must succeed.
fn said(command: &mut Command) -> String {
    let output = command.output().expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {errors}");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
