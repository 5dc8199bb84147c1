//! Properties that hold for every configuration file of a host; each function panics on a violation.
//!
//! Here and not in `fuzz/`, because they use private types: there is no library that reads these files.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::doctor::{HostEntry, Surroundings};
use crate::hosts::{Files, Machine, Platform, discover, read_file};

/// Reads the input as the files of some hosts, and as a file of each format that the user names. Checks that nothing
/// panics, and that mending an entry keeps the file readable, and every server in it.
pub fn host_config(input: &[u8]) {
    let text = String::from_utf8_lossy(input).into_owned();
    let platforms = [Platform::Linux, Platform::Windows];
    let machine = machine(platforms[text.len() % platforms.len()]);
    let discovered = discover(&machine, &SomeFiles(&text));
    for server in &discovered.servers {
        // Fails if the host alone knows a value.
        let _ = server.target(&machine);
    }
    let files = OneText(text);
    for name in ["a.json", "a.toml", "a.yaml"] {
        check_file(Path::new(name), &files);
    }
}

fn check_file(file: &Path, files: &OneText) {
    let Ok(read) = read_file(file, files) else {
        return;
    };
    let surroundings = Surroundings {
        is_found: &|program| program != "missing",
        find_elsewhere: &|_| Some("/opt/bin/missing".to_owned()),
        redirect: Some("https://x.example/mcp/"),
    };
    for server in &read.servers {
        let _ = server.target(&machine(Platform::Linux));
        let Ok(entry) = HostEntry::of_text(server, files.0.clone(), &surroundings) else {
            continue;
        };
        let Ok(mended) = entry.mended() else {
            continue;
        };
        let again = read_file(file, &OneText(mended.clone()));
        let again = again.expect("a mended file is readable");
        let names = |servers: &[crate::hosts::ConfiguredServer]| {
            let names = servers.iter().map(|it| it.name.clone());
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(&again.servers), names(&read.servers), "{mended}");
    }
}

fn machine(platform: Platform) -> Machine {
    Machine {
        platform,
        home: Some(PathBuf::from("/linux/ada")),
        env: BTreeMap::from([("TOKEN".to_owned(), "t".to_owned())]),
        cwd: PathBuf::from("/linux/ada/project"),
    }
}

/// A file system on which some files have the same text: which ones depends on its length. Reading all of them for each
/// input would take too long.
struct SomeFiles<'a>(&'a str);

impl Files for SomeFiles<'_> {
    fn read(&self, path: &Path) -> io::Result<Option<String>> {
        let length = path.as_os_str().len();
        let is_present = length % GROUPS == self.0.len() / 2 % GROUPS;
        Ok(is_present.then(|| self.0.to_owned()))
    }

    fn exists(&self, path: &Path) -> bool {
        path.ends_with(".git")
    }
}

const GROUPS: usize = 8;

/// A file system on which every file has the same text.
struct OneText(String);

impl Files for OneText {
    fn read(&self, _: &Path) -> io::Result<Option<String>> {
        Ok(Some(self.0.clone()))
    }

    fn exists(&self, _: &Path) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use bowline_fuzz::check_seeds;

    #[test]
    fn every_file_is_read_or_refused_and_mending_keeps_its_servers() {
        check_seeds("host_config", super::host_config);
    }
}
