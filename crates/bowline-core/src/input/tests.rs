//! Tests of both sides together: a handler, a client, and a different server in each round.

use std::collections::{BTreeMap, BTreeSet};

use bowline_types::Json;
use serde_json::{Value, json};

use super::*;

/// Runs a handler in rounds until it is done. Each round gets only the bytes of the state, like another replica.
struct HandlerRun {
    /// The keys of the input requests of each round.
    rounds: Vec<Vec<String>>,
    /// How often the host received each input request, by message.
    received: BTreeMap<String, u32>,
}

impl HandlerRun {
    /// `handler` returns its result once no input that it needs is pending.
    fn complete<T>(
        max_rounds: u32,
        mut handler: impl FnMut(&mut ServerRound) -> Option<T>,
    ) -> (T, Self) {
        let mut run = Self {
            rounds: Vec::new(),
            received: BTreeMap::new(),
        };
        let mut client =
            ClientRounds::new("tools/call", Some(json!({"name": "t"}).into()), max_rounds).unwrap();
        let mut params = crate::json::Params::from(json!({"name": "t"}));
        let digest = request_digest("tools/call", Some(&params));
        loop {
            let state = sealed_request_state(&params)
                .unwrap()
                .map(String::into_bytes);
            let mut round = ServerRound::open(&params, state.as_deref()).unwrap();
            let done = handler(&mut round);
            let Some(required) = round.finish(DEFAULT_MAX_STATE_BYTES).unwrap() else {
                return (done.expect("nothing is pending"), run);
            };
            let state = String::from_utf8(required.state.clone()).unwrap();
            run.answer_all(&mut client, &required.to_result(&state));
            params = client.retry_params().unwrap().into();
            assert_eq!(request_digest("tools/call", Some(&params)), digest);
        }
    }

    fn answer_all(&mut self, client: &mut ClientRounds, result: &Json) {
        assert!(is_input_required(result));
        let InputStep::Ask(requests) = client.next(result).unwrap() else {
            panic!("no input requests in {result}");
        };
        self.rounds
            .push(requests.iter().map(|(key, _)| key.clone()).collect());
        for (key, request) in requests {
            let params: Value = request.params.as_ref().unwrap().decode().unwrap();
            let message = params["message"].as_str().unwrap().to_owned();
            // The host answers differently each time, so that a repeated input request would show.
            let count = self.received.entry(message.clone()).or_default();
            *count += 1;
            let content = json!({"text": format!("{message} #{count}")});
            let answer = json!({"action": "accept", "content": content});
            client.answer(&key, answer.into()).unwrap();
        }
    }
}

fn form(message: &str) -> RawInputRequest {
    let params = json!({"message": message, "requestedSchema": {"type": "object"}});
    RawInputRequest::new(InputKind::Elicitation, Some(params.into()))
}

/// Returns the host's answer to a form, if it has one.
fn ask(round: &mut ServerRound, key: &str, message: &str) -> Option<String> {
    match round.ask(key, form(message)).unwrap() {
        InputStatus::Answered(answer) => {
            let answer: Value = answer.decode().unwrap();
            Some(answer["content"]["text"].as_str().unwrap().to_owned())
        }
        InputStatus::Pending => None,
    }
}

#[test]
fn one_input_request_takes_one_round() {
    let (answers, run) = HandlerRun::complete(1, |round| ask(round, "name", "Who?"));

    assert_eq!(answers, "Who? #1");
    assert_eq!(run.rounds, [["name"]]);
}

#[test]
fn three_dependent_input_requests_take_three_rounds_and_earlier_answers_stay() {
    let (answers, run) = HandlerRun::complete(3, |round| {
        let a = ask(round, "a", "A?")?;
        let b = ask(round, "b", &format!("B after {a}?"))?;
        let c = ask(round, "c", "C?")?;
        Some([a, b, c])
    });

    assert_eq!(answers, ["A? #1", "B after A? #1? #1", "C? #1"]);
    assert_eq!(run.rounds, [["a"], ["b"], ["c"]]);
}

#[test]
fn two_independent_input_requests_take_one_round() {
    let (answers, run) = HandlerRun::complete(1, |round| {
        let (a, b) = (ask(round, "a", "A?"), ask(round, "b", "B?"));
        a.zip(b)
    });

    assert_eq!(answers, ("A? #1".to_owned(), "B? #1".to_owned()));
    assert_eq!(run.rounds, [["a", "b"]]);
}

#[test]
fn a_remembered_step_is_not_repeated() {
    let mut charged = 0;

    let (receipt, _) = HandlerRun::complete(2, |round| {
        let first = ask(round, "pay", "Pay?")?;
        if round.recall("receipt").is_none() {
            charged += 1;
            round.remember("receipt", json!({"no": charged}).into());
        }
        let second = ask(round, "tip", "Tip?")?;
        Some((first, second, round.recall("receipt").cloned()))
    });

    assert_eq!(charged, 1);
    assert_eq!(receipt.2.unwrap().as_str(), r#"{"no":1}"#);
}

#[test]
fn any_handler_gets_each_answer_once_and_finds_it_again_in_every_run() {
    for seed in 1..=500 {
        let graph = DependencyGraph::random(seed);
        let mut known: BTreeMap<usize, String> = BTreeMap::new();

        let ((), run) = HandlerRun::complete(graph.depth(), |round| {
            let answers = graph.run(round);
            for (node, answer) in &answers {
                let first = known.entry(*node).or_insert_with(|| answer.clone());
                assert_eq!(first, answer, "seed {seed}: the answer to {node} changed");
            }
            (answers.len() == graph.needs.len()).then_some(())
        });

        assert_eq!(known.len(), graph.needs.len(), "seed {seed}");
        assert!(
            run.received.values().all(|count| *count == 1),
            "seed {seed}"
        );
        assert_eq!(run.received.len(), graph.needs.len(), "seed {seed}");
        assert_eq!(run.rounds.len(), graph.depth() as usize, "seed {seed}");
    }
}

/// Input requests that depend on the answers of others, which are part of their message.
struct DependencyGraph {
    needs: Vec<BTreeSet<usize>>,
}

impl DependencyGraph {
    fn random(seed: u64) -> Self {
        let mut random = XorShift(seed);
        let count = 1 + random.below(9);
        let needs = (0..count)
            .map(|node| (0..node).filter(|_| random.below(4) == 0).collect())
            .collect();
        Self { needs }
    }

    /// Makes all input requests whose dependencies are answered, and returns the answers.
    fn run(&self, round: &mut ServerRound) -> BTreeMap<usize, String> {
        let mut answers: BTreeMap<usize, String> = BTreeMap::new();
        for (node, needs) in self.needs.iter().enumerate() {
            let Some(given) = needs
                .iter()
                .map(|need| answers.get(need).map(String::as_str))
                .collect::<Option<Vec<_>>>()
            else {
                continue;
            };
            let message = format!("{node} given {given:?}");
            if let Some(answer) = ask(round, &format!("q{node}"), &message) {
                answers.insert(node, answer);
            }
        }
        answers
    }

    /// Returns the length of the longest path, which is the number of rounds.
    fn depth(&self) -> u32 {
        let mut depths: Vec<u32> = Vec::new();
        for needs in &self.needs {
            let before = needs.iter().map(|need| depths[*need]).max();
            depths.push(before.unwrap_or(0) + 1);
        }
        depths.into_iter().max().unwrap_or(0)
    }
}

/// A seeded random number generator (xorshift).
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 33) % bound as u64).unwrap()
    }
}
