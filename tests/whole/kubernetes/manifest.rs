//! The manifests as `kubectl apply -k` would send them.

use std::path::{Path, PathBuf};

use litd::config::Config;
use serde_json::{Map, Value};
use yaml_rust2::{Yaml, YamlLoader};

use crate::built::repository;

/// One way to install: the objects, by kind.
pub struct Manifest(Vec<Value>);

impl Manifest {
    /// For AMD GPUs: `deploy/kubernetes`.
    pub fn base() -> Self {
        Self(read("base/litd.yaml"))
    }

    /// For NVIDIA GPUs: `deploy/kubernetes/nvidia`.
    pub fn nvidia() -> Self {
        let overlay = read("nvidia/kustomization.yaml").remove(0);
        assert_eq!(overlay["resources"], serde_json::json!(["../base"]));
        Self::base().patched(&overlay)
    }

    /// With a ConfigMap that rules the fleet: `deploy/kubernetes/fleet`.
    pub fn fleet(self) -> Self {
        let component = read("fleet/kustomization.yaml").remove(0);
        assert_eq!(component["kind"], "Component");
        assert_eq!(component["resources"], serde_json::json!(["fleet.yaml"]));
        let mut manifest = self.patched(&component);
        manifest.0.extend(read("fleet/fleet.yaml"));
        manifest
    }

    /// With the directories for pods whose jobs have no hook: `deploy/kubernetes/attach`.
    pub fn attach(self) -> Self {
        let component = read("attach/kustomization.yaml").remove(0);
        assert_eq!(component["kind"], "Component");
        self.patched(&component)
    }

    fn patched(mut self, overlay: &Value) -> Self {
        for patch in overlay["patches"].as_array().expect("patches") {
            let kind = patch["target"]["kind"].as_str().expect("a kind");
            let object = self.of_mut(kind);
            assert_eq!(patch["target"]["name"], object["metadata"]["name"]);
            let operations = documents(patch["patch"].as_str().expect("a patch")).remove(0);
            for operation in operations.as_array().expect("operations") {
                apply(object, operation);
            }
        }
        self
    }

    /// All objects.
    pub fn objects(&self) -> &[Value] {
        &self.0
    }

    /// A value of the ConfigMap of this name.
    pub fn config_map(&self, name: &str, key: &str) -> &str {
        let mut maps = self.0.iter().filter(|it| it["kind"] == "ConfigMap");
        let map = maps.find(|it| it["metadata"]["name"] == name);
        let text = map.and_then(|it| it["data"][key].as_str());
        text.expect("the ConfigMap has it")
    }

    /// The only object of a kind.
    pub fn of(&self, kind: &str) -> &Value {
        let mut found = self.0.iter().filter(|it| it["kind"] == kind);
        let object = found.next().expect("there is one of the kind");
        assert!(found.next().is_none(), "two of {kind}");
        object
    }

    fn of_mut(&mut self, kind: &str) -> &mut Value {
        let found = self.0.iter_mut().find(|it| it["kind"] == kind);
        found.expect("there is one of the kind")
    }

    /// The pod that the daemon set makes.
    pub fn pod(&self) -> &Value {
        &self.of("DaemonSet")["spec"]["template"]["spec"]
    }

    /// The configuration in it.
    pub fn configuration(&self) -> &str {
        self.config_map("litd", "litd.toml")
    }

    /// The same as the daemon reads it.
    pub fn config(&self) -> Config {
        parsed(self.configuration())
    }

    /// The same once the ways to measure jobs without a hook are uncommented.
    pub fn config_with_attach(&self) -> Config {
        let (before, attach) = self
            .configuration()
            .split_once("#[attach]")
            .expect("a section");
        parsed(&format!("{before}[attach]{}", attach.replace("\n#", "\n")))
    }
}

fn parsed(configuration: &str) -> Config {
    Config::parse(configuration, Path::new("litd.toml")).expect("it is good")
}

/// The value of a variable of a pod's only container.
pub fn variable<'a>(pod: &'a Value, name: &str) -> &'a str {
    let all = pod["containers"][0]["env"].as_array().expect("variables");
    let found = all.iter().find(|it| it["name"] == name);
    found
        .and_then(|it| it["value"].as_str())
        .expect("the pod has it")
}

/// Where a file of a pod's only container is on the node; none: in a directory of the pod's own.
pub fn on_the_node(pod: &Value, file: &Path) -> Option<PathBuf> {
    let mounts = pod["containers"][0]["volumeMounts"].as_array();
    let mounts = mounts.expect("mounts").iter().filter_map(|mount| {
        let place = mount["mountPath"].as_str().expect("a place");
        Some((file.strip_prefix(place).ok()?, &mount["name"]))
    });
    let innermost = mounts.min_by_key(|(below, _)| below.components().count());
    let (below, name) = innermost.expect("it is in a volume");
    let mut volumes = pod["volumes"].as_array().expect("volumes").iter();
    let volume = volumes.find(|it| it["name"] == *name).expect("its volume");
    match volume["hostPath"]["path"].as_str() {
        Some(host) => Some(Path::new(host).join(below)),
        None => {
            assert!(volume["emptyDir"].is_object(), "{volume}");
            None
        }
    }
}

/// An `add` or `replace` of RFC 6902.
fn apply(object: &mut Value, operation: &Value) {
    let path = operation["path"].as_str().expect("a path");
    let (parent, key) = path.rsplit_once('/').expect("a path below the top");
    let parent = object.pointer_mut(parent).expect("the parent is there");
    let value = operation["value"].clone();
    match (operation["op"].as_str(), parent) {
        (Some("add"), Value::Array(list)) if key == "-" => list.push(value),
        (Some("add"), Value::Object(map)) => {
            assert!(map.insert(key.into(), value).is_none(), "{path} was there");
        }
        (Some("replace"), Value::Object(map)) => {
            assert!(map.insert(key.into(), value).is_some(), "{path} was absent");
        }
        (op, _) => panic!("what is {op:?} of {path}?"),
    }
}

/// A file's documents.
pub fn read(name: &str) -> Vec<Value> {
    let path = repository().join("deploy/kubernetes").join(name);
    documents(&std::fs::read_to_string(path).expect("the manifest is there"))
}

/// The documents of a YAML text.
pub fn documents(text: &str) -> Vec<Value> {
    let documents = YamlLoader::load_from_str(text).expect("it is YAML");
    documents.iter().map(json).collect()
}

fn json(yaml: &Yaml) -> Value {
    match yaml {
        Yaml::String(text) => text.as_str().into(),
        Yaml::Integer(number) => (*number).into(),
        Yaml::Boolean(truth) => (*truth).into(),
        Yaml::Array(list) => list.iter().map(json).collect(),
        Yaml::Hash(map) => map
            .iter()
            .map(|(key, value)| (key.as_str().expect("keys are texts").into(), json(value)))
            .collect::<Map<_, _>>()
            .into(),
        Yaml::Null => Value::Null,
        other => panic!("no manifest has {other:?}"),
    }
}
