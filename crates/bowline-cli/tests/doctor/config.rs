//! `bowline doctor --fix-config`.

use std::path::PathBuf;

use super::{BOWLINE, bowline, doctor_with};

/// A home folder with one configuration file, removed at the end.
struct Home {
    folder: PathBuf,
    file: PathBuf,
}

impl Home {
    fn new(name: &str, text: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("bowline-doctor-{}-{name}", std::process::id()));
        let cursor = folder.join(".cursor");
        std::fs::create_dir_all(&cursor).unwrap();
        let file = cursor.join("mcp.json");
        std::fs::write(&file, text).unwrap();
        Self { folder, file }
    }

    fn variables(&self) -> [(&str, &str); 1] {
        [("HOME", self.folder.to_str().unwrap())]
    }

    fn text(&self) -> String {
        std::fs::read_to_string(&self.file).unwrap()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The arguments stand in `command`, and the other entry must stay as it is.
fn text() -> String {
    format!(
        r#"{{
  // my servers
  "mcpServers": {{
    "demo": {{
      "command": "'{BOWLINE}' serve-demo", // the demonstration
    }},
    "other": {{"command": "npx x",   "args": []}},
  }},
}}
"#
    )
}

#[test]
fn the_entry_is_mended_after_a_backup_and_the_server_is_examined_again() {
    let home = Home::new("mended", &text());

    let examined = doctor_with(
        &[
            "cursor:demo",
            "--fix-config",
            "--yes",
            "--cancel-wait",
            "100ms",
        ],
        &home.variables(),
    );

    assert_eq!(examined.findings["config-words"], "error");
    assert_eq!(examined.findings["cannot-start"], "error");
    let after = &examined.report["fix"]["after"];
    assert_eq!(after["errors"], 0, "{after:#}");
    assert_eq!(examined.exit_code, 0);
    let changed = home.text();
    assert!(
        changed.contains("// my servers") && changed.contains("// the demonstration"),
        "{changed}"
    );
    assert!(
        changed.contains(r#""other": {"command": "npx x",   "args": []},"#),
        "{changed}"
    );
    assert!(
        changed.contains(&format!(r#""command": "{BOWLINE}","#)),
        "{changed}"
    );
    let backup = home.file.with_file_name("mcp.json.bowline-backup");
    assert_eq!(std::fs::read_to_string(backup).unwrap(), text());
}

#[test]
fn without_consent_nothing_is_changed() {
    let home = Home::new("kept", &text());

    // Standard input is not a terminal, so that there is no consent.
    let output = bowline(
        &["doctor", "cursor:demo", "--fix-config"],
        &home.variables(),
    );

    let stdout = String::from_utf8(output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stdout.contains("+ "), "the change is shown: {stdout}");
    assert!(stderr.contains("--yes"), "{stderr}");
    assert_eq!(output.status.code(), Some(6));
    assert_eq!(home.text(), text());
    let files = std::fs::read_dir(home.file.parent().unwrap()).unwrap();
    assert_eq!(files.count(), 1);
}

#[test]
fn a_target_without_a_file_cannot_be_mended() {
    let output = bowline(&["doctor", "http://127.0.0.1:1/mcp", "--fix-config"], &[]);

    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("bowline servers"), "{stderr}");
}
