//! A made-up root with `sys`, `dev` and `proc` below it, of plain files.

pub mod gpu;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use litd_power::{Inventory, Notice, PowerDomain, Search, Severity};
use tempfile::TempDir;

pub struct Tree {
    root: TempDir,
}

impl Tree {
    pub fn new() -> Self {
        let tree = Self {
            root: tempfile::tempdir().unwrap(),
        };
        for folder in ["sys", "dev", "proc"] {
            fs::create_dir(tree.path(folder)).unwrap();
        }
        tree
    }

    /// The full path of `path`.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.path().join(path)
    }

    /// Writes a file, and the folders above it.
    pub fn put(&self, path: impl AsRef<Path>, text: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn get(&self, path: impl AsRef<Path>) -> String {
        // A plain file keeps what a shorter value does not overwrite; a driver's file does not.
        let text = fs::read_to_string(self.path(path)).unwrap();
        text.lines().next().unwrap_or_default().to_owned()
    }

    pub fn remove(&self, path: impl AsRef<Path>) {
        let path = self.path(path);
        match path.is_dir() {
            true => fs::remove_dir_all(path).unwrap(),
            false => fs::remove_file(path).unwrap(),
        }
    }

    /// A symbolic link `at` that says `to`.
    pub fn link(&self, at: impl AsRef<Path>, to: impl AsRef<Path>) {
        let at = self.path(at);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(to, at).unwrap();
    }

    pub fn mode(&self, path: impl AsRef<Path>, mode: u32) {
        fs::set_permissions(self.path(path), fs::Permissions::from_mode(mode)).unwrap();
    }

    /// The kernel's account of the node's sockets: two processors each.
    pub fn sockets(&self, count: u32) {
        for processor in 0..2 * count {
            let topology = format!("sys/devices/system/cpu/cpu{processor}/topology");
            let package = format!("{}\n", processor % count);
            self.put(format!("{topology}/physical_package_id"), package);
        }
    }

    pub fn search(&self) -> Search {
        Search {
            sys: self.path("sys"),
            dev: self.path("dev"),
            proc: self.path("proc"),
            ..Search::default()
        }
    }
}

pub fn addresses(inventory: &Inventory) -> Vec<String> {
    let domains = inventory.domains.iter();
    domains
        .map(|domain| domain.identity().address.clone())
        .collect()
}

/// What is found, and then what is said of other programs: finding devices reads no process's name, for any user
/// can have so many that it would take longer than the devices are waited for.
pub fn with_tools(discover: fn(&Search) -> Inventory, tree: &Tree) -> Inventory {
    let mut found = discover(&tree.search());
    assert_eq!(found.notices, []);
    let back_ends = found
        .domains
        .iter()
        .map(|it| it.identity().backend.as_str());
    let tools = litd_power::other_tools(&tree.path("proc"), back_ends);
    found.notices.extend(tools);
    found
}

/// The only domain.
pub fn only(mut inventory: Inventory) -> Box<dyn PowerDomain> {
    assert_eq!(inventory.domains.len(), 1, "{inventory:?}");
    inventory.domains.remove(0)
}

/// The only notice that matters as much as `severity`.
pub fn notice(inventory: &Inventory, severity: Severity) -> &Notice {
    let all = inventory.notices.iter();
    let found: Vec<_> = all.filter(|notice| notice.severity == severity).collect();
    assert_eq!(found.len(), 1, "{:#?}", inventory.notices);
    found[0]
}
