//! Each law with a recording that keeps it and one that breaks it.

use std::collections::BTreeSet;

use super::*;
use crate::script::{http, stdio};

/// A law with recordings of stdio that keep and break it, and the line that the finding names first.
struct Case {
    law: &'static str,
    keeps: &'static str,
    breaks: &'static str,
    line: usize,
}

const fn case(law: &'static str, keeps: &'static str, breaks: &'static str, line: usize) -> Case {
    Case {
        law,
        keeps,
        breaks,
        line,
    }
}

fn broken(recording: &Recording, law: &str) -> Vec<usize> {
    let report = check(recording);
    let findings = report.findings.into_iter().filter(|it| it.law.name == law);
    findings.map(|it| it.lines[0]).collect()
}

fn verify(cases: &[Case], recording: fn(&str) -> Recording) {
    for case in cases {
        let law = case.law;
        assert_eq!(broken(&recording(case.keeps), law), [0; 0], "{law} is kept");
        assert_eq!(
            broken(&recording(case.breaks), law),
            [case.line],
            "{law} is broken"
        );
    }
}

#[test]
fn laws_hold_or_break_on_stdio() {
    verify(STDIO, stdio);
}

#[test]
fn laws_hold_or_break_on_http() {
    verify(HTTP, http);
}

#[test]
fn every_law_has_a_case_a_unique_name_and_a_page() {
    let tested: BTreeSet<&str> = STDIO.iter().chain(HTTP).map(|case| case.law).collect();
    let laws: BTreeSet<&str> = all_laws().map(|law| law.name).collect();
    assert_eq!(tested, laws);
    assert_eq!(all_laws().count(), laws.len());
    for law in all_laws() {
        assert!(law.url().contains("/specification/20"), "{}", law.url());
    }
}

#[test]
fn nothing_is_found_in_conversations_that_follow_the_specification() {
    for recording in [stdio(GOOD_MODERN), stdio(GOOD_LEGACY), http(GOOD_HTTP)] {
        let report = check(&recording);
        assert!(report.findings.is_empty(), "{:#?}", report.findings);
        assert!(report.notes.is_empty());
    }
}

#[test]
fn lost_events_silence_the_laws_about_what_is_absent() {
    let cut = stdio(
        r#"
        0 lost 5
        1 < {"id":1,"result":{}}
        2 > {"id":2,"method":"tools/list","params":{$M}}
        "#,
    );
    let report = check(&cut);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(report.notes.len(), 1);
}

#[test]
fn an_answer_that_crossed_the_cancel_is_not_a_violation() {
    let crossed = r#"
        0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
        10 > {"method":"notifications/cancelled","params":{"requestId":1}}
        30 < {"id":1,"result":{"content":[],$S}}
    "#;
    assert_eq!(broken(&stdio(crossed), "silent-after-cancel"), [0; 0]);
}

#[test]
fn the_terminator_of_a_cancelled_legacy_post_is_not_a_violation() {
    let terminated = r#"
        0 #1 POST /mcp mcp-session-id=s; mcp-protocol-version=2025-11-25
        0 #1 > {"id":1,"method":"tools/call","params":{"name":"a"}}
        1 #1 200 content-type=text/event-stream
        5 #2 POST /mcp mcp-session-id=s; mcp-protocol-version=2025-11-25
        5 #2 > {"method":"notifications/cancelled","params":{"requestId":1}}
        6 #2 202
        500 #1 < {"id":1,"error":{"code":-32800,"message":"cancelled"}}
        500 #1 end server
    "#;
    assert_eq!(broken(&http(terminated), "silent-after-cancel"), [0; 0]);
}

#[test]
fn junit_has_a_test_per_law_and_escapes_texts() {
    let report = check(&stdio(r#"0 < {"id":"<&\"","result":{}}"#));
    let xml = report.to_junit("a<b");

    assert_eq!(xml.matches("<testcase ").count(), all_laws().count());
    assert_eq!(xml.matches("<failure ").count(), 1);
    assert!(xml.contains("name=\"a&lt;b\""));
    assert!(xml.contains("line 2: "));
}

const STDIO: &[Case] = &[
    case(
        "answered",
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 < {"id":1,"result":{$S}}"#,
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 close client"#,
        2,
    ),
    case(
        "answered-once",
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 < {"id":1,"result":{$S}}
           2 > {"id":1,"method":"tools/list","params":{$M}}
           3 < {"id":1,"result":{$S}}"#,
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 < {"id":1,"result":{$S}}
           2 < {"id":1,"result":{$S}}"#,
        2,
    ),
    case(
        "answer-matches",
        r#"0 > {"id":1,"method":"ping"}
           1 < {"id":1,"result":{}}"#,
        r#"0 > {"id":1,"method":"ping"}
           1 < {"id":2,"result":{}}"#,
        3,
    ),
    case(
        "id-verbatim",
        r#"0 > {"id":"1","method":"ping"}
           1 < {"id":"1","result":{}}"#,
        r#"0 > {"id":1,"method":"ping"}
           1 < {"id":"1","result":{}}"#,
        2,
    ),
    case(
        "id-unique",
        r#"0 > {"id":1,"method":"ping"}
           1 > {"id":"1","method":"ping"}
           2 < {"id":1,"result":{}}
           3 > {"id":1,"method":"ping"}"#,
        r#"0 > {"id":1,"method":"ping"}
           1 > {"id":1,"method":"ping"}
           2 < {"id":1,"result":{}}"#,
        2,
    ),
    case(
        "id-once-per-session",
        r#"0 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
           1 < {"id":0,"result":{"protocolVersion":"2025-11-25"}}
           2 > {"id":1,"method":"ping"}
           3 < {"id":1,"result":{}}
           4 < {"id":1,"method":"ping"}"#,
        r#"0 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
           1 < {"id":0,"result":{"protocolVersion":"2025-11-25"}}
           2 > {"id":1,"method":"ping"}
           3 < {"id":1,"result":{}}
           4 > {"id":1,"method":"ping"}"#,
        4,
    ),
    case(
        "error-has-id",
        r#"0 bad > oops
           1 < {"error":{"code":-32700,"message":""}}"#,
        r#"0 > {"id":1,"method":"ping"}
           1 < {"error":{"code":-32700,"message":""}}"#,
        3,
    ),
    case(
        "result-is-object",
        r#"0 > {"id":1,"method":"ping"}
           1 < {"id":1,"result":{}}"#,
        r#"0 > {"id":1,"method":"ping"}
           1 < {"id":1,"result":[]}"#,
        3,
    ),
    case(
        "well-formed",
        r#"0 > {"id":1,"method":"ping"}"#,
        r#"0 open
           1 bad < Server started"#,
        3,
    ),
    case(
        "no-batch",
        r#"0 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-03-26"}}
           1 < {"id":0,"result":{"protocolVersion":"2025-03-26"}}
           2 > [{"id":1,"method":"ping"},{"id":2,"method":"ping"}]"#,
        r#"0 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18"}}
           1 < {"id":0,"result":{"protocolVersion":"2025-06-18"}}
           2 > [{"id":1,"method":"ping"},{"id":2,"method":"ping"}]"#,
        4,
    ),
    case(
        "notification-without-id",
        r#"0 > {"method":"notifications/initialized"}"#,
        r#"0 > {"id":1,"method":"notifications/initialized"}"#,
        2,
    ),
    case(
        "server-sends-no-request",
        r#"0 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
           1 < {"id":0,"result":{"protocolVersion":"2025-11-25"}}
           2 < {"id":1,"method":"roots/list"}"#,
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 < {"id":1,"method":"roots/list"}"#,
        3,
    ),
    case(
        "silent-after-cancel",
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 > {"method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 > {"method":"notifications/cancelled","params":{"requestId":1}}
           200 < {"id":1,"result":{$S}}"#,
        3,
    ),
    case(
        "cancel-own-request",
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 > {"method":"notifications/cancelled","params":{"requestId":1}}
           2 > {"method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 > {"method":"notifications/cancelled","params":{"requestId":2}}"#,
        3,
    ),
    case(
        "initialize-not-cancelled",
        r#"0 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#,
        r#"0 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
           9 > {"method":"notifications/cancelled","params":{"requestId":0}}"#,
        2,
    ),
    case(
        "server-cancels-subscriptions-only",
        r#"0 > {"id":1,"method":"subscriptions/listen","params":{"notifications":{},$M}}
           1 < {"method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 < {"id":9,"method":"ping","params":{$M}}
           2 < {"method":"notifications/cancelled","params":{"requestId":9}}"#,
        4,
    ),
    case(
        "request-version",
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 > {"id":2,"method":"ping"}"#,
        r#"0 > {"id":1,"method":"tools/list"}"#,
        2,
    ),
    case(
        "request-capabilities",
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}"#,
        r#"0 > {"id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}"#,
        2,
    ),
    case(
        "result-type",
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 < {"id":1,"result":{$S}}"#,
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 < {"id":1,"result":{}}"#,
        3,
    ),
    case(
        "cache-hints",
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 < {"id":1,"result":{$S,"tools":[],"ttlMs":0,"cacheScope":"private"}}"#,
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 < {"id":1,"result":{$S,"tools":[],"ttlMs":-1,"cacheScope":"private"}}"#,
        3,
    ),
    case(
        "removed-method",
        r#"0 > {"id":1,"method":"tasks/get","params":{"taskId":"t",$M}}
           1 > {"id":2,"method":"vendor/own","params":{$M}}"#,
        r#"0 > {"id":1,"method":"logging/setLevel","params":{$M}}"#,
        2,
    ),
    case(
        "error-code",
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 < {"id":1,"error":{"code":-32021,"message":""}}"#,
        r#"0 > {"id":1,"method":"resources/read","params":{"uri":"a:b",$M}}
           1 < {"id":1,"error":{"code":-32002,"message":""}}"#,
        3,
    ),
    case(
        "progress-increases",
        r#"0 > {"id":1,"method":"x","params":{"_meta":{"progressToken":1}}}
           1 < {"method":"notifications/progress","params":{"progressToken":1,"progress":1}}
           2 < {"method":"notifications/progress","params":{"progressToken":1,"progress":1.5}}"#,
        r#"0 > {"id":1,"method":"x","params":{"_meta":{"progressToken":1}}}
           1 < {"method":"notifications/progress","params":{"progressToken":1,"progress":1}}
           2 < {"method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
        3,
    ),
    case(
        "progress-known",
        r#"0 > {"id":1,"method":"x","params":{"_meta":{"progressToken":"a"}}}
           1 < {"method":"notifications/progress","params":{"progressToken":"a","progress":1}}"#,
        r#"0 > {"id":1,"method":"x","params":{"_meta":{"progressToken":"a"}}}
           1 < {"method":"notifications/progress","params":{"progressToken":"b","progress":1}}"#,
        3,
    ),
    case(
        "progress-stops",
        r#"0 > {"id":1,"method":"x","params":{"_meta":{"progressToken":1}}}
           1 < {"method":"notifications/progress","params":{"progressToken":1,"progress":1}}
           2 < {"id":1,"result":{}}"#,
        r#"0 > {"id":1,"method":"x","params":{"_meta":{"progressToken":1}}}
           1 < {"id":1,"result":{}}
           2 < {"method":"notifications/progress","params":{"progressToken":1,"progress":1}}"#,
        3,
    ),
    case(
        "progress-token-unique",
        r#"0 > {"id":1,"method":"x","params":{"_meta":{"progressToken":1}}}
           1 < {"id":1,"result":{}}
           2 > {"id":2,"method":"x","params":{"_meta":{"progressToken":1}}}"#,
        r#"0 > {"id":1,"method":"x","params":{"_meta":{"progressToken":1}}}
           1 > {"id":2,"method":"x","params":{"_meta":{"progressToken":1}}}"#,
        2,
    ),
    case(
        "log-requested",
        r#"0 > {"id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/logLevel":"info"}}}
           1 < {"method":"notifications/message","params":{"level":"info"}}"#,
        r#"0 > {"id":1,"method":"x","params":{$M}}
           1 < {"method":"notifications/message","params":{"level":"info"}}"#,
        2,
    ),
    case(
        "initialize-first",
        r#"0 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
           0 > {"id":1,"method":"ping"}
           1 < {"id":0,"result":{"protocolVersion":"2025-11-25"}}"#,
        r#"0 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
           0 > {"id":1,"method":"tools/list"}
           1 < {"id":0,"result":{"protocolVersion":"2025-11-25"}}"#,
        2,
    ),
    case(
        "initialize-result",
        r#"0 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
           1 < {"id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{}}}"#,
        r#"0 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
           1 < {"id":0,"result":{"protocolVersion":"2026-07-28","capabilities":{},"serverInfo":{}}}"#,
        3,
    ),
    case(
        "initialized-sent",
        r#"0 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
           1 < {"id":0,"result":{"protocolVersion":"2025-11-25"}}
           2 > {"method":"notifications/initialized"}
           3 > {"id":1,"method":"tools/list"}"#,
        r#"0 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
           1 < {"id":0,"result":{"protocolVersion":"2025-11-25"}}
           3 > {"id":1,"method":"tools/list"}"#,
        3,
    ),
    case(
        "subscription-acknowledged",
        r#"0 > {"id":1,"method":"subscriptions/listen","params":{"notifications":{},$M}}
           1 < {"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#,
        r#"0 > {"id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},$M}}
           1 < {"method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#,
        2,
    ),
    case(
        "subscription-filter",
        r#"0 > {"id":1,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["a:b"]},$M}}
           1 < {"method":"notifications/resources/updated","params":{"uri":"a:b","_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#,
        r#"0 > {"id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},$M}}
           1 < {"method":"notifications/prompts/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#,
        2,
    ),
    case(
        "subscription-id",
        r#"0 > {"id":"1","method":"subscriptions/listen","params":{"notifications":{},$M}}
           1 < {"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"1"}}}"#,
        r#"0 > {"id":"1","method":"subscriptions/listen","params":{"notifications":{},$M}}
           1 < {"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#,
        2,
    ),
    case(
        "subscription-changes-only",
        r#"0 > {"id":1,"method":"subscriptions/listen","params":{"notifications":{},$M}}
           1 < {"method":"notifications/message","params":{}}"#,
        r#"0 > {"id":1,"method":"subscriptions/listen","params":{"notifications":{},$M}}
           1 < {"method":"notifications/message","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#,
        2,
    ),
    case(
        "input-required-method",
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 < {"id":1,"result":{"resultType":"input_required","requestState":"s"}}"#,
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 < {"id":1,"result":{"resultType":"input_required","requestState":"s"}}"#,
        2,
    ),
    case(
        "input-required-content",
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 < {"id":1,"result":{"resultType":"input_required","requestState":"s"}}"#,
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 < {"id":1,"result":{"resultType":"input_required","inputRequests":{}}}"#,
        3,
    ),
    case(
        "input-capability",
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 < {"id":1,"result":{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create"}}}}"#,
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 < {"id":1,"result":{"resultType":"input_required","inputRequests":{"q":{"method":"roots/list"}}}}"#,
        2,
    ),
    case(
        "retry-new-id",
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 < {"id":1,"result":{"resultType":"input_required","requestState":"s"}}
           2 > {"id":2,"method":"tools/call","params":{"name":"a","requestState":"s",$M}}"#,
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 < {"id":1,"result":{"resultType":"input_required","requestState":"s"}}
           2 > {"id":1,"method":"tools/call","params":{"name":"a","requestState":"s",$M}}"#,
        2,
    ),
    case(
        "request-state-echoed",
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 < {"id":1,"result":{"resultType":"input_required","requestState":"s"}}
           2 > {"id":2,"method":"tools/call","params":{"name":"a","requestState":"s",$M}}"#,
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 < {"id":1,"result":{"resultType":"input_required","requestState":"s"}}
           2 > {"id":2,"method":"tools/call","params":{"name":"a","requestState":"t",$M}}"#,
        4,
    ),
    case(
        "input-responses-match",
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 < {"id":1,"result":{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create"}}}}
           2 > {"id":2,"method":"tools/call","params":{"name":"a","inputResponses":{"q":{}},$M}}"#,
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 < {"id":1,"result":{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create"}}}}
           2 > {"id":2,"method":"tools/call","params":{"name":"a","inputResponses":{"r":{}},$M}}"#,
        2,
    ),
    case(
        "tool-schema",
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 < {"id":1,"result":{$S,"tools":[{"name":"a","inputSchema":{"type":"object"}}]}}"#,
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 < {"id":1,"result":{$S,"tools":[{"name":"a","inputSchema":{"type":"string"}}]}}"#,
        3,
    ),
    case(
        "tool-name",
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 < {"id":1,"result":{$S,"tools":[{"name":"a-b_c.D1"}]}}"#,
        r#"0 > {"id":1,"method":"tools/list","params":{$M}}
           1 < {"id":1,"result":{$S,"tools":[{"name":"a"},{"name":"a"}]}}"#,
        3,
    ),
    case(
        "tool-content",
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 < {"id":1,"result":{$S,"content":[]}}"#,
        r#"0 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}
           1 < {"id":1,"result":{$S,"content":"text"}}"#,
        3,
    ),
    case(
        "list-shape",
        r#"0 > {"id":1,"method":"prompts/list","params":{$M}}
           1 < {"id":1,"result":{$S,"prompts":[],"nextCursor":""}}"#,
        r#"0 > {"id":1,"method":"prompts/list","params":{$M}}
           1 < {"id":1,"result":{$S,"prompts":[],"nextCursor":2}}"#,
        3,
    ),
    case(
        "resource-contents",
        r#"0 > {"id":1,"method":"resources/read","params":{"uri":"a:b",$M}}
           1 < {"id":1,"result":{$S,"contents":[{"uri":"a:b","text":""}]}}"#,
        r#"0 > {"id":1,"method":"resources/read","params":{"uri":"a:b",$M}}
           1 < {"id":1,"result":{$S,"contents":[]}}"#,
        3,
    ),
    case(
        "completion-limit",
        r#"0 > {"id":1,"method":"completion/complete","params":{$M}}
           1 < {"id":1,"result":{$S,"completion":{"values":[]}}}"#,
        r#"0 > {"id":1,"method":"completion/complete","params":{$M}}
           1 < {"id":1,"result":{$S,"completion":{}}}"#,
        3,
    ),
];

const HTTP: &[Case] = &[
    case(
        "client-sends-no-response",
        r#"0 #1 POST /mcp mcp-protocol-version=2025-11-25
           0 #1 > {"id":1,"result":{}}"#,
        r#"0 #1 POST /mcp mcp-protocol-version=2026-07-28
           0 #1 > {"id":1,"result":{}}"#,
        3,
    ),
    case(
        "no-posted-cancel",
        r#"0 #1 POST /mcp mcp-protocol-version=2025-11-25
           0 #1 > {"method":"notifications/cancelled","params":{"requestId":1}}"#,
        r#"0 #1 POST /mcp mcp-protocol-version=2026-07-28
           0 #1 > {"method":"notifications/cancelled","params":{"requestId":1}}"#,
        3,
    ),
    case(
        "header-version",
        r#"0 #1 POST /mcp mcp-protocol-version=2026-07-28
           0 #1 > {"id":1,"method":"tools/list","params":{$M}}"#,
        r#"0 #1 POST /mcp mcp-protocol-version=2025-11-25
           0 #1 > {"id":1,"method":"tools/list","params":{$M}}"#,
        2,
    ),
    case(
        "header-method",
        r#"0 #1 POST /mcp mcp-method=tools/list
           0 #1 > {"id":1,"method":"tools/list","params":{$M}}"#,
        r#"0 #1 POST /mcp mcp-method=tools/call
           0 #1 > {"id":1,"method":"tools/list","params":{$M}}"#,
        2,
    ),
    case(
        "header-name",
        r#"0 #1 POST /mcp mcp-name==?base64?w6Q=?=
           0 #1 > {"id":1,"method":"tools/call","params":{"name":"ä",$M}}"#,
        r#"0 #1 POST /mcp mcp-method=tools/call
           0 #1 > {"id":1,"method":"tools/call","params":{"name":"a",$M}}"#,
        2,
    ),
    case(
        "header-params",
        r#"0 #1 POST /mcp
           0 #1 > {"id":1,"method":"tools/list","params":{$M}}
           1 #1 200
           1 #1 < {"id":1,"result":{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"Region"}}}}]}}
           2 #2 POST /mcp mcp-param-region=eu
           2 #2 > {"id":2,"method":"tools/call","params":{"name":"a","arguments":{"r":"eu"},$M}}"#,
        r#"0 #1 POST /mcp
           0 #1 > {"id":1,"method":"tools/list","params":{$M}}
           1 #1 200
           1 #1 < {"id":1,"result":{"tools":[{"name":"a","inputSchema":{"type":"object","properties":{"r":{"type":"string","x-mcp-header":"Region"}}}}]}}
           2 #2 POST /mcp
           2 #2 > {"id":2,"method":"tools/call","params":{"name":"a","arguments":{"r":"eu"},$M}}"#,
        6,
    ),
    case(
        "header-version-legacy",
        r#"0 #1 POST /mcp
           0 #1 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
           1 #1 200 mcp-session-id=s
           1 #1 < {"id":0,"result":{"protocolVersion":"2025-11-25"}}
           2 #2 POST /mcp mcp-session-id=s; mcp-protocol-version=2025-11-25
           2 #2 > {"id":1,"method":"tools/list"}"#,
        r#"0 #1 POST /mcp
           0 #1 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
           1 #1 200 mcp-session-id=s
           1 #1 < {"id":0,"result":{"protocolVersion":"2025-11-25"}}
           2 #2 POST /mcp mcp-session-id=s
           2 #2 > {"id":1,"method":"tools/list"}"#,
        6,
    ),
    case(
        "header-session",
        r#"0 #1 POST /mcp
           0 #1 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
           1 #1 200 mcp-session-id=s
           2 #2 POST /mcp mcp-session-id=s
           2 #2 > {"id":1,"method":"tools/list"}"#,
        r#"0 #1 POST /mcp
           0 #1 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
           1 #1 200 mcp-session-id=s
           2 #2 POST /mcp accept=a
           2 #2 > {"id":1,"method":"tools/list"}"#,
        5,
    ),
    case(
        "accept-both",
        r#"0 #1 POST /mcp accept=text/event-stream;q=0.5, application/json
           0 #1 > {"id":1,"method":"tools/list","params":{$M}}"#,
        r#"0 #1 POST /mcp accept=application/json
           0 #1 > {"id":1,"method":"tools/list","params":{$M}}"#,
        2,
    ),
    case(
        "response-content-type",
        r#"0 #1 POST /mcp
           0 #1 > {"id":1,"method":"tools/list","params":{$M}}
           1 #1 200 content-type=application/json; charset=utf-8"#,
        r#"0 #1 POST /mcp
           0 #1 > {"id":1,"method":"tools/list","params":{$M}}
           1 #1 200 content-type=text/html"#,
        4,
    ),
    case(
        "accepted-202",
        r#"0 #1 POST /mcp
           0 #1 > {"method":"notifications/initialized"}
           1 #1 202"#,
        r#"0 #1 POST /mcp
           0 #1 > {"method":"notifications/initialized"}
           1 #1 200"#,
        3,
    ),
    case(
        "error-status",
        r#"0 #1 POST /mcp
           0 #1 > {"id":1,"method":"x","params":{$M}}
           1 #1 404 content-type=application/json
           1 #1 < {"id":1,"error":{"code":-32601,"message":""}}"#,
        r#"0 #1 POST /mcp
           0 #1 > {"id":1,"method":"x","params":{$M}}
           1 #1 200 content-type=application/json
           1 #1 < {"id":1,"error":{"code":-32601,"message":""}}"#,
        4,
    ),
    case(
        "no-modern-session",
        r#"0 #1 POST /mcp
           0 #1 > {"id":1,"method":"x","params":{$M}}
           1 #1 200 content-type=application/json"#,
        r#"0 #1 POST /mcp
           0 #1 > {"id":1,"method":"x","params":{$M}}
           1 #1 200 mcp-session-id=s"#,
        4,
    ),
];

const GOOD_MODERN: &str = r#"
    0 open
    0 > {"id":1,"method":"server/discover","params":{$M}}
    1 < {"id":1,"result":{$S,"supportedVersions":["2026-07-28"],"capabilities":{},"ttlMs":1,"cacheScope":"public"}}
    2 > {"id":2,"method":"tools/call","params":{"name":"ask",$M}}
    3 < {"id":2,"result":{"resultType":"input_required","inputRequests":{"q":{"method":"elicitation/create","params":{}}},"requestState":"s"}}
    4 > {"id":3,"method":"tools/call","params":{"name":"ask","inputResponses":{"q":{"action":"decline"}},"requestState":"s",$M}}
    5 < {"id":3,"result":{"content":[],$S}}
    6 > {"id":4,"method":"tools/call","params":{"name":"slow",$M}}
    7 > {"method":"notifications/cancelled","params":{"requestId":4}}
    8 > {"id":"L","method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},$M}}
    9 < {"method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"L"}}}
    9 stderr ready
    10 close client
"#;

const GOOD_LEGACY: &str = r#"
    0 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
    1 < {"id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{}}}
    2 > {"method":"notifications/initialized"}
    3 > {"id":1,"method":"tools/call","params":{"name":"ask","_meta":{"progressToken":1}}}
    4 < {"id":0,"method":"elicitation/create","params":{}}
    5 < {"method":"notifications/progress","params":{"progressToken":1,"progress":0}}
    6 > {"id":0,"result":{"action":"cancel"}}
    7 < {"id":1,"result":{"content":[]}}
"#;

const GOOD_HTTP: &str = r#"
    0 #1 POST /mcp accept=application/json, text/event-stream; mcp-protocol-version=2026-07-28; mcp-method=tools/call; mcp-name=slow
    0 #1 > {"id":1,"method":"tools/call","params":{"name":"slow",$M}}
    1 #1 200 content-type=text/event-stream
    9 #1 cut client
    10 c2 #2 POST /mcp accept=application/json, text/event-stream
    10 c2 #2 > {"id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}
    11 c2 #2 200 content-type=application/json; mcp-session-id=s
    11 c2 #2 < {"id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{}}}
    11 c2 #2 end server
    12 c2 #3 POST /mcp accept=application/json, text/event-stream; mcp-session-id=s; mcp-protocol-version=2025-11-25
    12 c2 #3 > {"method":"notifications/initialized"}
    13 c2 #3 202
    13 c2 #3 end server
    14 c3 #4 GET /mcp accept=text/event-stream; mcp-session-id=s; mcp-protocol-version=2025-11-25
    14 c3 #4 200 content-type=text/event-stream
    15 c3 #4 < {"id":1,"method":"roots/list"}
    16 c2 #5 POST /mcp accept=application/json, text/event-stream; mcp-session-id=s; mcp-protocol-version=2025-11-25
    16 c2 #5 > {"id":1,"result":{"roots":[]}}
    17 c2 #5 202
    17 c2 #5 end server
    18 c3 #4 cut client
"#;
