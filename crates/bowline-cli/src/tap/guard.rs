//! The guard of the command that `tap` runs: a process that ends the command if `tap` is killed.
//!
//! A process that gets SIGKILL cannot end its child. The guard holds the other end of a pipe that only `tap` writes to:
//! if the pipe ends without a byte, `tap` was killed. The command, whose stdin has then ended too, gets a grace period,
//! SIGTERM, another grace period, and SIGKILL.

use clap::Args;

use crate::exit::Exit;

#[derive(Clone, Debug, PartialEq, Eq, Args)]
pub(crate) struct GuardOptions {
    /// The process group.
    group: u32,
}

#[cfg(unix)]
pub(super) use unix::Guard;

/// Waits for the end of stdin, then ends the process group.
pub(crate) fn guard(options: &GuardOptions) -> Exit {
    #[cfg(unix)]
    unix::guard(options.group);
    #[cfg(not(unix))]
    let _ = options.group;
    Exit::Success
}

#[cfg(unix)]
mod unix {
    use std::io::{Read as _, Write as _};
    use std::os::unix::process::CommandExt as _;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

    /// A running guard.
    #[derive(Debug)]
    pub(in crate::tap) struct Guard(Child);

    impl Guard {
        /// Starts a guard of a process group. Without one, the command is ended in all cases but SIGKILL.
        pub(in crate::tap) fn start(group: u32) -> Option<Self> {
            let program = std::env::current_exe().ok()?;
            let child = Command::new(program)
                .arg("tap-guard")
                .arg(group.to_string())
                .stdin(Stdio::piped())
                // Not those of the host, which would wait for the guard to close them.
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                // A host that kills the group of `tap` must not kill the guard.
                .process_group(0)
                .spawn();
            child.ok().map(Self)
        }

        /// Ends the guard, because the command has ended.
        pub(in crate::tap) fn dismiss(mut self) {
            if let Some(mut stdin) = self.0.stdin.take() {
                // Fails if the guard has ended already.
                let _ = stdin.write_all(b".");
            }
            // It ends at once; if not, this process does not wait for it.
            let deadline = Instant::now() + DISMISSAL;
            while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < deadline {
                std::thread::sleep(POLL);
            }
        }
    }

    pub(super) fn guard(group: u32) {
        let mut byte = [0];
        let is_dismissed = std::io::stdin()
            .read(&mut byte)
            .is_ok_and(|count| count > 0);
        let group = i32::try_from(group).ok().and_then(Pid::from_raw);
        let (Some(group), false) = (group, is_dismissed) else {
            return;
        };
        for signal in [Signal::TERM, Signal::KILL] {
            let deadline = Instant::now() + GRACE;
            while Instant::now() < deadline {
                if test_kill_process_group(group).is_err() {
                    return; // it has exited
                }
                std::thread::sleep(POLL);
            }
            let _ = kill_process_group(group, signal);
        }
    }

    /// How long a command has to exit after its stdin has ended, and again after SIGTERM.
    const GRACE: Duration = Duration::from_secs(2);
    const POLL: Duration = Duration::from_millis(5);
    const DISMISSAL: Duration = Duration::from_millis(500);
}
