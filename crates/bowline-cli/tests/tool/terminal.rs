//! A person at a terminal: questions, progress and Ctrl-C.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::support::BOWLINE;

/// `bowline` whose stdin and stderr are a terminal, and whose stdout is a pipe.
struct TerminalProgram {
    child: std::process::Child,
    keyboard: File,
    screen: Receiver<String>,
    seen: String,
}

impl TerminalProgram {
    fn start(words: &[&str]) -> Self {
        Self::spawn(BOWLINE, words)
    }

    fn spawn(program: &str, words: &[&str]) -> Self {
        let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&main).unwrap();
        unlockpt(&main).unwrap();
        let name = ptsname(&main, Vec::new()).unwrap();
        let open = || {
            let path = name.to_str().unwrap();
            File::options().read(true).write(true).open(path).unwrap()
        };
        let child = std::process::Command::new(program)
            .args(words)
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .env_remove("COLUMNS")
            .env("BROWSER", "true") // a program that does nothing
            .stdin(open())
            .stderr(open())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // The clone is not inherited by programs of other tests.
        let keyboard = File::from(main).try_clone().unwrap();
        let mut reader = keyboard.try_clone().unwrap();
        let (parts, screen) = channel();
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            // Fails when the child has closed the terminal.
            while let Ok(count @ 1..) = reader.read(&mut buffer) {
                let part = String::from_utf8_lossy(&buffer[..count]).into_owned();
                if parts.send(part).is_err() {
                    return;
                }
            }
        });
        Self {
            child,
            keyboard,
            screen,
            seen: String::new(),
        }
    }

    /// Waits until the terminal shows a text.
    fn wait_for(&mut self, text: &str) {
        while !self.seen.contains(text) {
            match self.screen.recv_timeout(Duration::from_secs(60)) {
                Ok(part) => self.seen.push_str(&part),
                Err(_) => panic!("no `{text}` on the terminal, but {:?}", self.seen),
            }
        }
    }

    fn type_line(&mut self, line: &str) {
        self.type_key(&format!("{line}\n"));
    }

    fn type_key(&mut self, key: &str) {
        self.keyboard.write_all(key.as_bytes()).unwrap();
    }

    /// Waits for the end, and returns the exit code and stdout.
    fn end(&mut self) -> (Option<i32>, String) {
        let mut stdout = String::new();
        let pipe = self.child.stdout.as_mut().unwrap();
        pipe.read_to_string(&mut stdout).unwrap();
        let code = self.child.wait().unwrap().code();
        self.seen.extend(self.screen.try_iter());
        (code, stdout)
    }
}

impl Drop for TerminalProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_form_is_filled_in_field_by_field() {
    let mut program = TerminalProgram::start(&["call", "ask", "--", BOWLINE, "serve-demo"]);

    program.wait_for("What is your name?");
    program.wait_for("> ");
    program.type_line("");
    program.wait_for("this field is required");
    program.type_line("Ada");

    assert_eq!(program.end(), (Some(0), "accepted:Ada\n".to_owned()));
}

#[test]
fn a_form_can_be_declined_and_cancelled() {
    for (line, expected) in [(":decline", "declined\n"), (":cancel", "cancelled\n")] {
        let mut program = TerminalProgram::start(&["call", "ask", "--", BOWLINE, "serve-demo"]);

        program.wait_for("> ");
        program.type_line(line);

        assert_eq!(program.end(), (Some(0), expected.to_owned()));
    }
}

#[test]
fn progress_is_a_bar_and_is_gone_at_the_end() {
    let words = ["call", "progress", "n=20", "--", BOWLINE, "serve-demo"];
    let mut program = TerminalProgram::start(&words);

    program.wait_for("█");
    program.wait_for("step 20");
    program.wait_for("100% step 20\r\u{1b}[K");

    assert_eq!(program.end(), (Some(0), "20 steps\n".to_owned()));
}

/// The first Ctrl-C waits for a server that neither answers nor exits; the second one does not.
#[cfg(target_os = "linux")] // `setsid` gives a program a terminal of its own
#[test]
fn a_second_ctrl_c_leaves_at_once() {
    let words = [
        "call",
        "-v",
        "work",
        "--args",
        "{}",
        "--",
        "sh",
        "-c",
        DEAF_SERVER,
    ];
    let mut program =
        TerminalProgram::spawn("setsid", &[&["--ctty", BOWLINE][..], &words].concat());
    program.wait_for("called");

    // The terminal turns the key into a signal.
    program.type_key(CTRL_C);
    program.wait_for("cancelled");
    program.type_key(CTRL_C);
    let (code, _) = program.end();

    assert_eq!(code, Some(130));
    // The report is printed when the connection is closed.
    assert!(!program.seen.contains("had read it"), "{}", program.seen);
    assert!(!program.seen.contains("that took"), "{}", program.seen);
}

/// Answers only the handshake, and does not exit when it is asked to.
#[cfg(target_os = "linux")]
const DEAF_SERVER: &str = r#"
    trap '' INT TERM HUP
    while read -r line; do
        id=$(echo "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
        case "$line" in
            *server/discover*)
                echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32601,\"message\":\"no\"}}" ;;
            *'"initialize"'*)
                info='"serverInfo":{"name":"deaf","version":"1"}'
                result="{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{}},$info}"
                echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$result}" ;;
            *tools/call*) echo called >&2 ;;
            *notifications/cancelled*) echo cancelled >&2 ;;
        esac
    done
    while :; do sleep 1000; done"#;
#[cfg(target_os = "linux")]
const CTRL_C: &str = "\u{3}";
