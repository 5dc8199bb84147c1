//! What is typed for each picture, and what the screen shows before the next key.

/// One picture.
pub(super) struct Scene {
    /// The name of its file.
    pub(super) name: &'static str,
    /// What it shows, for those who cannot see it.
    pub(super) title: &'static str,
    pub(super) steps: &'static [Step],
}

pub(super) enum Step {
    Type(&'static str),
    /// A key by its tmux name.
    Press(&'static str),
    /// Waits until the screen contains this.
    WaitFor(&'static str),
    /// Waits until the shell waits for the next command.
    WaitForPrompt,
}

use Step::{Press, Type, WaitFor, WaitForPrompt};

pub(super) const SCENES: &[Scene] = &[
    Scene {
        name: "demo",
        title: "bowline demo: calls that are dropped in process and over stdio and HTTP, and how their handlers stop",
        steps: &[Type("bowline demo"), Press("Enter"), WaitForPrompt],
    },
    Scene {
        name: "ls",
        title: "bowline ls: the tools, resources and prompts of a server as signatures, and one tool in full",
        steps: &[
            Type("bowline ls --short -- bowline serve-demo"),
            Press("Enter"),
            WaitForPrompt,
            Type("bowline ls --name slow -- bowline serve-demo"),
            Press("Enter"),
            WaitForPrompt,
        ],
    },
    Scene {
        name: "progress",
        title: "bowline call: a mistake with the signature of the tool, a result, and a call with its progress bar",
        steps: &[
            Type("bowline call add a=2 b=four -- bowline serve-demo"),
            Press("Enter"),
            WaitForPrompt,
            Type("bowline call add a=2 b=40 -- bowline serve-demo"),
            Press("Enter"),
            WaitForPrompt,
            Type("bowline call progress n=200 -- bowline serve-demo"),
            Press("Enter"),
            WaitFor("step 12"),
        ],
    },
    Scene {
        name: "call",
        title: "bowline call: Ctrl-C cancels the call, and the command says how the server was told and how long that took",
        steps: &[
            Type("bowline call progress n=10000 -- bowline serve-demo"),
            Press("Enter"),
            WaitFor("step 12"),
            Press("C-c"),
            WaitForPrompt,
        ],
    },
    Scene {
        name: "form",
        title: "bowline call: a question of the server, asked at the terminal",
        steps: &[
            Type("bowline call ask -- bowline serve-demo"),
            Press("Enter"),
            WaitFor("> "),
            Press("Enter"),
            WaitFor("required"),
            Type("Ada"),
            Press("Enter"),
            WaitForPrompt,
        ],
    },
    Scene {
        name: "tap",
        title: "bowline tap and show: the messages of a call that was cancelled, and one exchange in full",
        steps: &[
            Type(
                "bowline call slow seconds=60 --timeout 300ms -- bowline tap --record a.jsonl -- bowline serve-demo",
            ),
            Press("Enter"),
            WaitForPrompt,
            Type("bowline show a.jsonl"),
            Press("Enter"),
            WaitForPrompt,
            Type("bowline show a.jsonl --exchange 3"),
            Press("Enter"),
            WaitForPrompt,
        ],
    },
    Scene {
        name: "doctor",
        title: "bowline doctor: a server that prints to stdout what is not a message",
        steps: &[
            Type("bowline doctor -- sh -c 'echo Loading; exec bowline serve-demo'"),
            Press("Enter"),
            WaitForPrompt,
        ],
    },
];
