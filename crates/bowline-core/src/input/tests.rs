//! Both sides together: a handler that asks, a client that answers, and a different server each round.

use std::collections::{BTreeMap, BTreeSet};

use bowline_types::Json;
use serde_json::{Value, json};

use super::*;

/// Runs a handler in rounds until it is done. Every round gets its state as bytes and nothing else, as
/// another replica would.
struct Play {
    /// What the client was asked in each round, by key.
    rounds: Vec<Vec<String>>,
    /// How often each question, by its message, was put to the host.
    put: BTreeMap<String, u32>,
}

impl Play {
    /// `handler` gives its result once nothing it needs is pending.
    fn run<T>(cap: u32, mut handler: impl FnMut(&mut Round) -> Option<T>) -> (T, Self) {
        let mut play = Self {
            rounds: Vec::new(),
            put: BTreeMap::new(),
        };
        let mut client = Rounds::new("tools/call", Some(json!({"name": "t"}).into()), cap).unwrap();
        let mut params = crate::json::Params::from(json!({"name": "t"}));
        let digest = request_digest("tools/call", Some(&params));
        loop {
            let state = request_state(&params).unwrap().map(String::into_bytes);
            let mut round = Round::open(&params, state.as_deref()).unwrap();
            let done = handler(&mut round);
            let Some(required) = round.finish(DEFAULT_STATE_LIMIT).unwrap() else {
                return (done.expect("nothing is pending"), play);
            };
            let state = String::from_utf8(required.state.clone()).unwrap();
            play.answer_all(&mut client, &required.to_result(&state));
            params = client.retry_params().unwrap().into();
            assert_eq!(request_digest("tools/call", Some(&params)), digest);
        }
    }

    fn answer_all(&mut self, client: &mut Rounds, result: &Json) {
        assert!(is_input_required(result));
        let Step::Ask(questions) = client.next(result).unwrap() else {
            panic!("no questions in {result}");
        };
        self.rounds
            .push(questions.iter().map(|(key, _)| key.clone()).collect());
        for (key, question) in questions {
            let params: Value = question.params.as_ref().unwrap().decode().unwrap();
            let message = params["message"].as_str().unwrap().to_owned();
            // The host answers differently each time, so that a second asking would show.
            let count = self.put.entry(message.clone()).or_default();
            *count += 1;
            let content = json!({"said": format!("{message} #{count}")});
            let answer = json!({"action": "accept", "content": content});
            client.answer(&key, answer.into()).unwrap();
        }
    }
}

fn form(message: &str) -> Question {
    let params = json!({"message": message, "requestedSchema": {"type": "object"}});
    Question::new(Kind::Elicitation, Some(params.into()))
}

/// What the host said to a form, if it was asked before.
fn ask(round: &mut Round, key: &str, message: &str) -> Option<String> {
    match round.ask(key, form(message)).unwrap() {
        Asked::Answered(answer) => {
            let answer: Value = answer.decode().unwrap();
            Some(answer["content"]["said"].as_str().unwrap().to_owned())
        }
        Asked::Pending => None,
    }
}

#[test]
fn one_question_takes_one_round() {
    let (said, play) = Play::run(1, |round| ask(round, "name", "Who?"));

    assert_eq!(said, "Who? #1");
    assert_eq!(play.rounds, [["name"]]);
}

#[test]
fn three_questions_in_a_row_take_three_rounds_and_earlier_answers_stay() {
    let (said, play) = Play::run(3, |round| {
        let a = ask(round, "a", "A?")?;
        let b = ask(round, "b", &format!("B after {a}?"))?;
        let c = ask(round, "c", "C?")?;
        Some([a, b, c])
    });

    assert_eq!(said, ["A? #1", "B after A? #1? #1", "C? #1"]);
    assert_eq!(play.rounds, [["a"], ["b"], ["c"]]);
}

#[test]
fn two_questions_that_do_not_wait_for_each_other_take_one_round() {
    let (said, play) = Play::run(1, |round| {
        let (a, b) = (ask(round, "a", "A?"), ask(round, "b", "B?"));
        a.zip(b)
    });

    assert_eq!(said, ("A? #1".to_owned(), "B? #1".to_owned()));
    assert_eq!(play.rounds, [["a", "b"]]);
}

#[test]
fn what_was_remembered_is_not_done_again() {
    let mut charged = 0;

    let (receipt, _) = Play::run(2, |round| {
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
        let graph = Graph::random(seed);
        let mut known: BTreeMap<usize, String> = BTreeMap::new();

        let ((), play) = Play::run(graph.depth(), |round| {
            let said = graph.run(round);
            for (node, answer) in &said {
                let first = known.entry(*node).or_insert_with(|| answer.clone());
                assert_eq!(first, answer, "seed {seed}: the answer to {node} changed");
            }
            (said.len() == graph.needs.len()).then_some(())
        });

        assert_eq!(known.len(), graph.needs.len(), "seed {seed}");
        assert!(play.put.values().all(|count| *count == 1), "seed {seed}");
        assert_eq!(play.put.len(), graph.needs.len(), "seed {seed}");
        assert_eq!(play.rounds.len(), graph.depth() as usize, "seed {seed}");
    }
}

/// Questions of which each is asked when those it needs are answered, with their answers in its text.
struct Graph {
    needs: Vec<BTreeSet<usize>>,
}

impl Graph {
    fn random(seed: u64) -> Self {
        let mut dice = Dice(seed);
        let count = 1 + dice.below(9);
        let needs = (0..count)
            .map(|node| (0..node).filter(|_| dice.below(4) == 0).collect())
            .collect();
        Self { needs }
    }

    /// Asks whatever can be asked, and gives what is answered.
    fn run(&self, round: &mut Round) -> BTreeMap<usize, String> {
        let mut said: BTreeMap<usize, String> = BTreeMap::new();
        for (node, needs) in self.needs.iter().enumerate() {
            let Some(given) = needs
                .iter()
                .map(|need| said.get(need).map(String::as_str))
                .collect::<Option<Vec<_>>>()
            else {
                continue;
            };
            let message = format!("{node} given {given:?}");
            if let Some(answer) = ask(round, &format!("q{node}"), &message) {
                said.insert(node, answer);
            }
        }
        said
    }

    /// The longest way through, which is how many rounds it takes.
    fn depth(&self) -> u32 {
        let mut depths: Vec<u32> = Vec::new();
        for needs in &self.needs {
            let before = needs.iter().map(|need| depths[*need]).max();
            depths.push(before.unwrap_or(0) + 1);
        }
        depths.into_iter().max().unwrap_or(0)
    }
}

/// Numbers that look random and come again with the same seed (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from((self.0 >> 33) % bound as u64).unwrap()
    }
}
