//! The cost of one `tools/call` in servers over stdio.

use crate::load::{Message, StdioLoad};
use crate::machine::Core;
use crate::measure::{Goal, Row, Series, interleave};
use crate::options::Options;
use crate::program::{Program, Subject};

/// With 64 requests in flight and with one.
pub(crate) fn modern(options: &Options) -> Vec<Row> {
    vec![
        Row::cpu(
            "stdio server, 64 in flight",
            Some(Goal::Ratio(4.0)),
            &run(options, &Subject::ALL, 64),
        ),
        Row::cpu(
            "stdio server, 1 in flight",
            Some(Goal::Ratio(1.4)),
            &run(options, &Subject::ALL, 1),
        ),
    ]
}

/// Starts the servers and runs their turns.
pub(crate) fn run(options: &Options, subjects: &[Subject], in_flight: usize) -> Vec<Series> {
    let message = Message::call("echo", r#"{"text":"hello"}"#, "hello");
    let started = subjects.iter().map(|subject| {
        let mut program = Program::start(subject.server().arg("--stdio"), Core::Test);
        let load = StdioLoad::new(program.pipes(), &message);
        (*subject, (program, load))
    });
    let mut started: Vec<_> = started.collect();
    interleave(options.rounds(), &mut started, |(program, load)| {
        load.measure(program.id(), in_flight, options.window())
    })
}
