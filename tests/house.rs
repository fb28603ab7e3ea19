//! Who knows whom: the arrows of docs/architecture.md, by `cargo metadata`.

#![allow(clippy::unwrap_used, reason = "in tests a panic is the report")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The packages of each room, and the packages of this workspace that each may know besides those that
/// tests alone want. Whoever adds an arrow adds it here, where it is seen.
const ARROWS: [(&str, &[&str]); 35] = [
    // These know nobody.
    ("litd-units", &[]),
    ("litd-diagnosis", &[]),
    ("litd-files", &[]),
    ("litd-rig-nvml", &[]),
    // These know units, and what their own words need.
    ("litd-trial", &["litd-units"]),
    ("litd-bindings", &["litd-units"]),
    ("litd-proto", &["litd-units"]),
    ("litd-attach", &["litd-units"]),
    ("litd-policies", &["litd-diagnosis", "litd-units"]),
    ("litd-traces", &["litd-diagnosis", "litd-units"]),
    ("litd-power", &["litd-bindings", "litd-units"]),
    // The plugin for NCCL knows what it tells litd, and nothing else.
    ("litd-nccl", &["litd-attach"]),
    // What back ends read on a node, as a file.
    ("litd-recording", &["litd-files"]),
    // The judgement of devices, by what back ends say.
    ("litd-qualify", &["litd-power", "litd-units"]),
    ("litd-api", &["litd-trial", "litd-units"]),
    ("litd-estimate", &["litd-api", "litd-trial", "litd-units"]),
    // Planners speak to the daemon through what hooks and litctl tell it.
    ("litd-profiles", &["litd-units"]),
    ("litd-planner", &["litd-profiles", "litd-units"]),
    ("litd-carbon", &["litd-units"]),
    ("litd-inference", &["litd-units"]),
    (
        "litd-kareus",
        &["litd-planner", "litd-profiles", "litd-units"],
    ),
    (
        "litd-planner-server",
        &["litd-planner", "litd-profiles", "litd-units"],
    ),
    // The daemon.
    (
        "litd-core",
        &[
            "litd-api",
            "litd-policies",
            "litd-power",
            "litd-proto",
            "litd-traces",
            "litd-trial",
            "litd-units",
        ],
    ),
    (
        "litd",
        &[
            "litd-api",
            "litd-attach",
            "litd-core",
            "litd-files",
            "litd-policies",
            "litd-power",
            "litd-proto",
            "litd-qualify",
            "litd-traces",
            "litd-units",
        ],
    ),
    // Who speaks to it.
    ("litd-client", &["litd-api", "litd-files", "litd-units"]),
    ("litd-replay", &["litd-proto", "litd-traces", "litd-units"]),
    (
        "litd-cli",
        &[
            "litd-api",
            "litd-kareus",
            "litd-planner",
            "litd-profiles",
            "litd-traces",
            "litd-trial",
            "litd-units",
        ],
    ),
    (
        "litctl",
        &[
            "litd",
            "litd-api",
            "litd-carbon",
            "litd-cli",
            "litd-client",
            "litd-core",
            "litd-diagnosis",
            "litd-estimate",
            "litd-files",
            "litd-inference",
            "litd-kareus",
            "litd-planner",
            "litd-power",
            "litd-profiles",
            "litd-recording",
            "litd-replay",
            "litd-traces",
            "litd-trial",
            "litd-units",
        ],
    ),
    // What is SIMULATED, and what only tests need. The laboratory knows everyone.
    ("litd-sim", &["litd-traces", "litd-units"]),
    // Of the simulator it knows the random numbers alone: laws are judged on what others wrote.
    ("litd-plants", &["litd-files", "litd-sim", "litd-units"]),
    ("litd-overlap", &["litd-kareus", "litd-sim", "litd-units"]),
    (
        "litd-study",
        &[
            "litd-plants",
            "litd-policies",
            "litd-sim",
            "litd-traces",
            "litd-trial",
            "litd-units",
        ],
    ),
    (
        "litd-rig",
        &[
            "litd-power",
            "litd-proto",
            "litd-replay",
            "litd-rig-nvml",
            "litd-sim",
            "litd-traces",
            "litd-units",
        ],
    ),
    (
        "litd-rig-sysfs",
        &[
            "litd-files",
            "litd-power",
            "litd-recording",
            "litd-rig",
            "litd-sim",
            "litd-units",
        ],
    ),
    (
        "litlab",
        &[
            "litd",
            "litd-api",
            "litd-carbon",
            "litd-cli",
            "litd-client",
            "litd-core",
            "litd-inference",
            "litd-kareus",
            "litd-overlap",
            "litd-planner",
            "litd-plants",
            "litd-policies",
            "litd-profiles",
            "litd-replay",
            "litd-rig",
            "litd-sim",
            "litd-study",
            "litd-traces",
            "litd-units",
        ],
    ),
];

/// The programs that a node gets, which link nothing that is SIMULATED and no stand-in.
const SHIPPED: [&str; 3] = ["litd", "litctl", "litd-planner-server"];

/// What that is.
const SIMULATED: [&str; 8] = [
    "litd-overlap",
    "litd-sim",
    "litd-plants",
    "litd-study",
    "litd-rig",
    "litd-rig-nvml",
    "litd-rig-sysfs",
    "litlab",
];

/// The folders at the top.
const ROOMS: [&str; 14] = [
    "bindings", "crates", "ctl", "deploy", "docs", "fleet", "hooks", "lab", "planners", "policies",
    "src", "systemd", "tests", "traces",
];

/// The packages of this workspace, as `cargo metadata` has them.
fn packages() -> Vec<Value> {
    let metadata = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--format-version=1",
            "--locked",
            "--offline",
        ])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(metadata.status.success(), "{metadata:?}");
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

/// What each package of the workspace depends on here, tests apart.
fn arrows() -> BTreeMap<String, BTreeSet<String>> {
    let packages = packages();
    let name = |it: &Value| it["name"].as_str().unwrap().to_owned();
    let own = BTreeSet::from_iter(packages.iter().map(name));
    let known = |package: &Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let linked = dependencies.filter(|it| it["kind"] != "dev").map(name);
        linked.filter(|it| own.contains(it)).collect()
    };
    packages.iter().map(|it| (name(it), known(it))).collect()
}

#[test]
fn arrows_point_one_way() {
    let wanted = ARROWS.map(|(package, known)| {
        let known = known.iter().map(|&it| it.to_owned());
        (package.to_owned(), known.collect())
    });
    assert_eq!(arrows(), BTreeMap::from(wanted));
}

#[test]
fn what_a_node_gets_links_nothing_that_is_simulated() {
    let arrows = arrows();
    for program in SHIPPED {
        let (mut linked, mut next) = (BTreeSet::new(), vec![program.to_owned()]);
        while let Some(package) = next.pop() {
            next.extend(arrows[&package].iter().cloned());
            linked.insert(package);
        }
        for simulated in SIMULATED {
            assert!(!linked.contains(simulated), "{program} links {simulated}");
        }
    }
}

/// What a plain `cargo test` leaves to the gate, with what is below each: the laboratory, planners and bindings take
/// longer to compile and test than a newcomer waits, and hooks that other programs load want a C compiler for their
/// tests.
const HEAVY: [&str; 4] = ["lab", "planners", "bindings", "hooks"];

#[test]
fn every_package_that_is_not_heavy_is_a_default_member() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest: toml::Table = fs::read_to_string(top.join("Cargo.toml"))
        .unwrap()
        .parse()
        .unwrap();
    let listed = |key: &str| {
        let list = manifest["workspace"][key].as_array().unwrap().iter();
        BTreeSet::from_iter(list.map(|it| it.as_str().unwrap().to_owned()))
    };
    let mut members = listed("members");
    members.insert(".".to_owned());
    members.retain(|it| !HEAVY.iter().any(|heavy| Path::new(it).starts_with(heavy)));
    assert_eq!(listed("default-members"), members);
}

/// The Rust files of a folder and of those in it.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|it| it.unwrap().path());
    let files = entries.flat_map(|path| match path.is_dir() {
        true => sources(&path),
        false => vec![path],
    });
    let rust = |path: &PathBuf| path.extension().is_some_and(|it| it == "rs");
    files.filter(rust).collect()
}

/// Whether a comment has an example that rustdoc would compile: a block that says of no other language.
fn has_example(text: &str) -> bool {
    let mut inside = false;
    text.lines().any(|line| {
        let line = line.trim_start();
        let comment = line
            .strip_prefix("//!")
            .or_else(|| line.strip_prefix("///"));
        let Some(fence) = comment.and_then(|it| it.trim_start().strip_prefix("```")) else {
            return false;
        };
        inside = !inside;
        inside && fence != "text"
    })
}

/// A target with `test = false` or `doctest = false` costs no program in `cargo test`, and what its sources would
/// test is tested by nobody.
#[test]
fn where_no_tests_are_made_there_are_none() {
    let mut looked = 0;
    for package in packages() {
        for target in package["targets"].as_array().unwrap() {
            let kind = target["kind"][0].as_str().unwrap();
            if !["lib", "cdylib", "bin"].contains(&kind) {
                continue;
            }
            let root = Path::new(target["src_path"].as_str().unwrap());
            let is_alone = kind == "bin" && root.with_file_name("lib.rs").exists();
            let files = match is_alone || root.parent().unwrap().ends_with("bin") {
                true => vec![root.to_owned()],
                false => sources(root.parent().unwrap()),
            };
            for file in files {
                let text = fs::read_to_string(&file).unwrap();
                let has_test = text.contains("#[test]") || text.contains("proptest!");
                let at = file.display();
                assert!(target["test"] == true || !has_test, "{at} has a test");
                assert!(
                    target["doctest"] == true || !has_example(&text),
                    "{at} has an example"
                );
                looked += 1;
            }
        }
    }
    assert!(looked > 400, "{looked} files");
}

#[test]
fn the_house_has_fourteen_rooms() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let tracked = Command::new("git")
        .args(["ls-files", "--", "*/*"])
        .current_dir(top)
        .output();
    let folders: BTreeSet<String> = match tracked {
        Ok(output) if output.status.success() => {
            let names = String::from_utf8(output.stdout).unwrap();
            let folder = |it: &str| it.split('/').next().unwrap_or(it).to_owned();
            names.lines().map(folder).collect()
        }
        // No checkout: what lies there, but for what is built.
        _ => {
            let entries = fs::read_dir(top).unwrap().map(Result::unwrap);
            let folders = entries.filter(|it| it.path().is_dir());
            let names = folders.map(|it| it.file_name().into_string().unwrap());
            names.filter(|it| it != "target").collect()
        }
    };
    let rooms = folders.iter().filter(|it| !it.starts_with('.'));
    let rooms = BTreeSet::from_iter(rooms.map(String::as_str));
    assert_eq!(rooms, BTreeSet::from(ROOMS));
}

/// A page that nobody reads to its end is none: the picture, a line for each room, the rules.
#[test]
fn the_page_on_the_house_fits_on_two_screens() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architecture.md");
    let lines = fs::read_to_string(page).unwrap().lines().count();
    assert!(lines <= 100, "docs/architecture.md has {lines} lines");
}

/// The folders of the daemon, in which few comments may begin with a bare pronoun, and all other folders
/// with Rust sources, whose share is only printed.
const OF_THE_DAEMON: [&str; 2] = ["src", "crates"];

/// The largest share of such comments in the package of each folder.
const MOST_BARE: f64 = 0.05;

/// First words that the reader has to resolve from elsewhere.
const PRONOUNS: &str = "It It's Its They Their Theirs Them This That That's These Those He She His Him Her Who Who's \
    Whoever Whom Whose What What's Whatever Which Whichever One Ones None Nobody Somebody Someone Anybody Anyone \
    Everybody Everyone Nothing Something Anything Everything Other Others We You Us";

/// First words that are pronouns only where no noun follows, but one of [`NO_NOUNS`] or a mark.
const DETERMINERS: &str =
    "All Any Another Both Each Either Few Many Most Neither Several Some Such";

/// Words after a determiner that show that it stands alone.
const NO_NOUNS: &str = "a an alone and are as at be been but by can come comes could did do does else ever for from go \
    goes had has have here how if in into is it its may might must no not of on only or over shall should so still \
    than that the their there they to too under until was were what when where which while who whom will with without \
    would";

/// Whether a comment begins with a bare pronoun.
fn is_bare(comment: &str) -> bool {
    let text = comment.trim_start_matches(|it: char| !it.is_alphanumeric());
    let is_word = |it: char| it.is_alphanumeric() || it == '\'';
    let first = text.split(|it| !is_word(it)).next().unwrap_or_default();
    let rest = &text[first.len()..];
    let has = |list: &str, word: &str| list.split_whitespace().any(|it| it == word);
    let next = rest.trim_start().split(|it| !is_word(it)).next();
    let stands_alone = !rest.starts_with(' ') || has(NO_NOUNS, next.unwrap_or_default());
    has(PRONOUNS, first) || has(DETERMINERS, first) && stands_alone
}

/// The comments of a file: runs of lines that have nothing but a comment of one kind (`//`, `///`, `//!`).
fn comments(text: &str) -> Vec<String> {
    let mut comments: Vec<(&str, String)> = Vec::new();
    let mut last = "";
    for line in text.lines() {
        let line = line.trim_start();
        let kinds = ["///", "//!", "//"];
        let kind = kinds.into_iter().find(|it| line.starts_with(it));
        let kind = kind
            .filter(|_| !line.starts_with("////"))
            .unwrap_or_default();
        match comments.last_mut() {
            Some((_, comment)) if kind == last && !kind.is_empty() => {
                comment.push_str(&line[kind.len()..]);
            }
            _ if !kind.is_empty() => comments.push((kind, line[kind.len()..].to_owned())),
            _ => {}
        }
        last = kind;
    }
    let texts = comments.into_iter().map(|(_, text)| text);
    texts.filter(|text| !text.trim().is_empty()).collect()
}

/// A comment that begins with a bare What, It or One sends its reader elsewhere for the subject. The words are in
/// [`PRONOUNS`] and [`DETERMINERS`]; `cargo test --test house pronoun -- --nocapture` prints each package's share.
#[test]
fn few_comments_begin_with_a_bare_pronoun() {
    for (comment, bare) in [
        (" What is left of it.", true),
        (" Its cap.", true),
        (" All of them.", true),
        (" All GPUs of a job.", false),
        (" The cap that is left.", false),
    ] {
        assert_eq!(is_bare(comment), bare, "{comment}");
    }
    let two = "/// What it\n/// does.\nfn f() {\n    // It.\n}\n";
    assert_eq!(comments(two).len(), 2);

    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut folders = Vec::from([(top.join("src"), true)]);
    for package in packages() {
        let manifest = Path::new(package["manifest_path"].as_str().unwrap());
        let folder = manifest.parent().unwrap().to_owned();
        if folder != top {
            let room = folder.strip_prefix(top).unwrap().iter().next().unwrap();
            let is_daemon = OF_THE_DAEMON.iter().any(|&it| room == it);
            folders.push((folder, is_daemon));
        }
    }
    let mut over = Vec::new();
    for (folder, is_daemon) in folders {
        let (mut all, mut bare) = (0_u32, Vec::new());
        for file in sources(&folder) {
            let found = comments(&fs::read_to_string(&file).unwrap());
            all += u32::try_from(found.len()).unwrap();
            let found = found.into_iter().filter(|it| is_bare(it));
            bare.extend(found.map(|it| format!("{}:{it}", file.display())));
        }
        let share = bare.len() as f64 / f64::from(all.max(1));
        let name = folder.strip_prefix(top).unwrap().display();
        println!("{:5.1} % of {all:4} comments: {name}", share * 100.0);
        if is_daemon && share > MOST_BARE {
            over.extend(bare);
        }
    }
    assert!(over.is_empty(), "{}", over.join("\n"));
}
