//! What is typed for each picture, and what the screen shows before the next key.

/// One picture.
pub(super) struct Scene {
    /// The name of its file.
    pub(super) name: &'static str,
    /// What it shows, for those who cannot see it.
    pub(super) title: &'static str,
    /// Files in the folder of the shell, with their content.
    pub(super) files: &'static [(&'static str, &'static str)],
    pub(super) steps: &'static [Step],
}

pub(super) enum Step {
    Type(&'static str),
    /// A key by its tmux name.
    Press(&'static str),
    /// Waits until the screen contains this.
    WaitFor(&'static str),
}

use Step::{Press, Type, WaitFor};

pub(super) const SCENES: &[Scene] = &[
    Scene {
        name: "demo",
        title: "bowline demo: calls that are dropped on every transport, and how their handlers stop",
        files: &[],
        steps: &[Type("bowline demo"), Press("Enter"), WaitFor("leaked\n")],
    },
    Scene {
        name: "ls",
        title: "bowline ls: the tools of a server as signatures",
        files: &[],
        steps: &[
            Type("bowline ls -- bowline serve-demo"),
            Press("Enter"),
            WaitFor("greet"),
        ],
    },
    Scene {
        name: "call-cancelled",
        title: "bowline call, with progress, and cancelled with Ctrl-C",
        files: &[],
        steps: &[
            Type("bowline call progress n=20 -- bowline serve-demo"),
            Press("Enter"),
            WaitFor("20 steps"),
            Type("bowline call slow seconds=60 -- bowline serve-demo"),
            Press("Enter"),
            WaitFor("Ctrl-C"),
            Press("C-c"),
            WaitFor("cancelled"),
        ],
    },
];
