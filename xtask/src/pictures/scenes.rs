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
}

use Step::{Press, Type, WaitFor};

pub(super) const SCENES: &[Scene] = &[
    Scene {
        name: "demo",
        title: "bowline demo: calls that are dropped on every transport, and how their handlers stop",
        steps: &[
            Type("bowline demo"),
            Press("Enter"),
            WaitFor("nothing leaked"),
            WaitFor("\n$"),
        ],
    },
    Scene {
        name: "ls",
        title: "bowline ls: the tools of a server as signatures",
        steps: &[
            Type("bowline ls -- bowline serve-demo"),
            Press("Enter"),
            WaitFor("Greets a person."),
            WaitFor("\n$"),
        ],
    },
    Scene {
        name: "call",
        title: "bowline call: a result, and a call with a progress bar that Ctrl-C cancels",
        steps: &[
            Type("bowline call add a=2 b=40 -- bowline serve-demo"),
            Press("Enter"),
            WaitFor("42"),
            Type("bowline call progress n=10000 -- bowline serve-demo"),
            Press("Enter"),
            WaitFor("step 1"),
            Press("C-c"),
            WaitFor("cancelled"),
            WaitFor("\n$"),
        ],
    },
    Scene {
        name: "form",
        title: "bowline call: a question of the server, asked at the terminal",
        steps: &[
            Type("bowline call ask -- bowline serve-demo"),
            Press("Enter"),
            WaitFor("name"),
            WaitFor("What is your name?"),
            Type("Ada"),
            Press("Enter"),
            WaitFor("accepted:Ada"),
            WaitFor("\n$"),
        ],
    },
    Scene {
        name: "tap",
        title: "bowline tap and show: the messages of a call that was cancelled",
        steps: &[
            Type(
                "bowline call slow seconds=60 --timeout 300ms -- bowline tap --record a.jsonl -- bowline serve-demo",
            ),
            Press("Enter"),
            WaitFor("timed out"),
            Type("bowline show a.jsonl"),
            Press("Enter"),
            WaitFor("exchanges"),
            WaitFor("\n$"),
        ],
    },
    Scene {
        name: "doctor",
        title: "bowline doctor: what it found out about a server",
        steps: &[
            Type("bowline doctor -- bowline serve-demo"),
            Press("Enter"),
            WaitFor("0 errors"),
            WaitFor("\n$"),
        ],
    },
];
