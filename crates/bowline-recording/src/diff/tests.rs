//! Tests of the comparison of recordings.

use serde_json::json;

use super::*;
use crate::script::stdio;

fn found(left: &str, right: &str) -> Vec<String> {
    found_with(left, right, &DiffOptions::new())
}

fn found_with(left: &str, right: &str, options: &DiffOptions) -> Vec<String> {
    let diff = diff(&stdio(left), &stdio(right), options);
    let describe = |change: &ExchangeChange| match (change.left, change.right) {
        (Some(left), None) => vec![format!("-{left}")],
        (None, Some(right)) => vec![format!("+{right}")],
        _ => change.changes.iter().map(|it| it.path.clone()).collect(),
    };
    diff.changes.iter().flat_map(describe).collect()
}

const CALL: &str = r#"
    0 > {"id":1,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2},$M}}
    5 < {"id":1,"result":{"content":[{"type":"text","text":"3"}],"requestState":"x",$S}}
"#;

#[test]
fn ids_times_states_and_the_order_of_members_do_not_matter() {
    let same = r#"
        90 > {"id":"seven","method":"tools/call","params":{"arguments":{"b":2,"a":1},"name":"add"}}
        99 < {"id":"seven","result":{$S,"content":[{"text":"3","type":"text"}],"requestState":"y"}}
    "#;

    assert_eq!(found(CALL, same), [""; 0]);
}

#[test]
fn changed_results_are_found_at_their_paths_unless_ignored() {
    let other = CALL.replace(r#""text":"3""#, r#""text":"4""#);

    assert_eq!(found(CALL, &other), ["result.content[0].text"]);
    let options = DiffOptions::new().ignore("result.content[*].text".parse().unwrap());
    assert_eq!(found_with(CALL, &other, &options), [""; 0]);
}

#[test]
fn added_and_removed_exchanges_are_named() {
    let more = format!(r#"{CALL} 9 > {{"id":2,"method":"ping"}}"#);

    assert_eq!(found(CALL, &more), ["+2"]);
    assert_eq!(found(&more, CALL), ["-2"]);
}

#[test]
fn exchanges_with_other_arguments_are_compared_if_nothing_fits_better() {
    let other = CALL.replace(r#""b":2"#, r#""b":3"#);
    let both = format!("{other}{}", CALL.replace(r#""id":1"#, r#""id":2"#));

    assert_eq!(found(CALL, &other), ["arguments.arguments.b"]);
    assert_eq!(found(CALL, &both), ["+1"]);
}

#[test]
fn errors_cancels_and_missing_answers_differ_from_results() {
    let request = CALL.lines().nth(1).unwrap();
    let error = format!("{request}\n5 < {{\"id\":1,\"error\":{{\"code\":1,\"message\":\"no\"}}}}");
    let cancel = format!(
        "{request}\n5 > {{\"method\":\"notifications/cancelled\",\"params\":{{\"requestId\":1}}}}"
    );

    assert_eq!(found(CALL, &error), ["error", "result", "state"]);
    assert_eq!(found(CALL, &cancel), ["result", "state"]);
    assert_eq!(found(&cancel, request), ["state"]);
}

#[test]
fn json_differences_have_both_values() {
    let changes = json_diff(
        &json!({"a": 1, "c": {"x y": [0]}}),
        &json!({"b": 2, "c": {"x y": []}}),
        &[],
    );

    let texts: Vec<String> = changes
        .iter()
        .map(|it| format!("{} {:?} {:?}", it.path, it.left, it.right))
        .collect();
    assert_eq!(
        texts,
        [
            "a Some(Number(1)) None",
            "b None Some(Number(2))",
            "c.x y[0] Some(Number(0)) None",
        ]
    );
}
