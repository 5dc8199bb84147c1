//! Merged pages: every item once, unknown members kept, hints of the most careful server.

use std::collections::BTreeMap;

use bowline::{ErrorCode, Json};
use serde_json::{Value, json};

use super::{LastLists, MAX_PAGES, Names, PageCursor, PageMerger};
use crate::config::ItemKind;
use crate::test_random::SplitMix64;

fn names() -> Names {
    Names::new("__", [("a", None), ("b", None), ("c", None)]).unwrap()
}

fn page(text: &str) -> Json {
    Json::parse(text.to_owned()).unwrap()
}

fn merge(kind: ItemKind, pages: &[&str]) -> Value {
    let names = names();
    let mut merger = PageMerger::new(&names, kind, ["a", "b", "c"], None).unwrap();
    for text in pages {
        merger.add_page(&page(text), |_| true).unwrap();
    }
    merger.finish().decode().unwrap()
}

/// The lists of servers: for each its pages, which begin at cursors that are numbers.
type Servers = BTreeMap<String, Vec<Vec<String>>>;

fn page_of(servers: &Servers, server: &str, cursor: Option<&str>) -> Json {
    let at: usize = cursor.map_or(0, |cursor| cursor.parse().unwrap());
    let pages = &servers[server];
    let tools: Vec<_> = pages[at].iter().map(|name| json!({"name": name})).collect();
    let mut page = json!({"tools": tools, "ttlMs": 60_000, "cacheScope": "public"});
    if at + 1 < pages.len() {
        page["nextCursor"] = (at + 1).to_string().into();
    }
    page.into()
}

fn tool_names(page: &Value) -> Vec<String> {
    let tools = page["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_server_whose_cursors_never_end_does_not_hide_those_after_it() {
    let names = Names::new("__", [("a", None), ("b", None)]).unwrap();
    let (mut cursor, mut tools, mut requests): (Option<String>, Vec<String>, u32) =
        (None, Vec::new(), 0);
    loop {
        let merger = PageMerger::new(&names, ItemKind::Tool, ["a", "b"], cursor.as_deref());
        let mut merger = merger.unwrap();
        while let Some(position) = merger.position() {
            let text = match (position.server(), position.cursor()) {
                ("a", Some("1")) => r#"{"tools": [{"name": "x"}], "nextCursor": "2"}"#,
                ("a", _) => r#"{"tools": [{"name": "x"}], "nextCursor": "1"}"#,
                _ => r#"{"tools": [{"name": "y"}]}"#,
            };
            requests += 1;
            merger.add_page(&page(text), |_| true).unwrap();
        }
        let merged: Value = merger.finish().decode().unwrap();
        tools.extend(tool_names(&merged));
        match merged["nextCursor"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => break,
        }
    }

    assert_eq!(tools.last().unwrap(), "b__y");
    assert_eq!(requests, MAX_PAGES + 1);
}

#[test]
fn a_merged_list_visits_each_item_once_and_in_order() {
    let mut random = SplitMix64::new(5);
    for _ in 0..2000 {
        let count = 1 + random.below(4);
        let servers: Servers = (0..count)
            .map(|server| {
                let pages = 1 + random.below(4);
                let page = |at: usize, random: &mut SplitMix64| {
                    let items = random.below(4);
                    (0..items)
                        .map(|item| format!("t{at}_{item}"))
                        .collect::<Vec<_>>()
                };
                let pages = (0..pages).map(|at| page(at, &mut random)).collect();
                (format!("s{server}"), pages)
            })
            .collect();
        let names = Names::new("__", servers.keys().map(|it| (it.as_str(), None))).unwrap();

        let (mut visited, mut cursor, mut requests) = (Vec::new(), None::<String>, 0);
        loop {
            let order = servers.keys().map(String::as_str);
            let mut merger =
                PageMerger::new(&names, ItemKind::Tool, order, cursor.as_deref()).unwrap();
            while let Some(position) = merger.position() {
                let page = page_of(&servers, position.server(), position.cursor());
                merger.add_page(&page, |_| true).unwrap();
                requests += 1;
            }
            let page: Value = merger.finish().decode().unwrap();
            visited.extend(tool_names(&page));
            cursor = page["nextCursor"].as_str().map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }

        let all = servers.iter().flat_map(|(server, pages)| {
            let items = pages.iter().flatten();
            items
                .map(|item| names.outer(server, item).unwrap().into_owned())
                .collect::<Vec<_>>()
        });
        assert_eq!(visited, all.collect::<Vec<_>>());
        let pages: usize = servers.values().map(Vec::len).sum();
        assert_eq!(requests, pages, "each page is requested once");
    }
}

#[test]
fn items_keep_their_text() {
    let tool = r#"{"x": 1.00, "name":"a\u0041", "n": 12345678901234567890123, "x": null, "description":"\u00e9"}"#;
    let text = format!(
        r#"{{"tools": [{tool}, 7, {{}}, {{"name": "p", "name": "q"}}], "z": 1E2, "_meta": {{"k": 1}}}}"#
    );
    let names = Names::new("__", [("a", None), ("b", None)]).unwrap();
    let mut merger = PageMerger::new(&names, ItemKind::Tool, ["a"], None).unwrap();

    merger.add_page(&page(&text), |_| true).unwrap();

    let expected = r#"{"tools":[{"x":1.00,"name":"a__aA","n":12345678901234567890123,"x":null,"description":"\u00e9"}],"z":1E2,"_meta":{"k": 1}}"#;
    assert_eq!(merger.finish().as_str(), expected);
}

#[test]
fn resources_keep_their_uris() {
    let merged = merge(
        ItemKind::Resource,
        &[
            r#"{"resources": [{"uri": "x:1", "name": "n"}]}"#,
            r#"{"resources": []}"#,
            r#"{"resources": [{"uri": "y:1"}]}"#,
        ],
    );

    assert_eq!(
        merged,
        json!({"resources": [{"uri": "x:1", "name": "n"}, {"uri": "y:1"}]})
    );
    let templates = r#"{"resourceTemplates": [{"uriTemplate": "x:{y}"}]}"#;
    let merged = merge(
        ItemKind::ResourceTemplate,
        &[templates, templates, templates],
    );
    assert_eq!(merged["resourceTemplates"].as_array().unwrap().len(), 3);
}

#[test]
fn a_page_has_the_hints_of_the_most_careful_part() {
    let hints = |pages: &[&str]| {
        let merged = merge(ItemKind::Tool, pages);
        (
            merged.get("ttlMs").cloned(),
            merged.get("cacheScope").cloned(),
        )
    };
    let public = r#"{"tools": [], "ttlMs": 60, "cacheScope": "public"}"#;
    let private = r#"{"tools": [], "ttlMs": 9, "cacheScope": "private"}"#;
    let none = r#"{"tools": []}"#;

    assert_eq!(
        hints(&[public, public, public]),
        (Some(60.into()), Some("public".into()))
    );
    assert_eq!(
        hints(&[public, private, public]),
        (Some(9.into()), Some("private".into()))
    );
    assert_eq!(hints(&[public, none, public]), (None, None));
    assert_eq!(
        hints(&[private, none, public]),
        (None, Some("private".into()))
    );
}

#[test]
fn what_is_filtered_or_cannot_be_named_is_left_out() {
    let names = names();
    let mut merger = PageMerger::new(&names, ItemKind::Prompt, ["a"], None).unwrap();
    let long = "x".repeat(200);
    let text = format!(
        r#"{{"prompts": [{{"name": "yes"}}, {{"name": "no"}}, {{"name": "{long}"}}], "cacheScope": "public"}}"#
    );

    merger.set_private();
    merger.add_page(&page(&text), |name| name != "no").unwrap();

    assert_eq!(merger.refused().len(), 1);
    let merged = merger.finish();
    assert_eq!(
        merged.as_str(),
        r#"{"prompts":[{"name":"a__yes"}],"cacheScope":"private"}"#
    );
}

#[test]
fn a_server_that_cannot_be_reached_is_shown_as_stale_or_left_out() {
    let names = names();
    let mut lists = LastLists::default();
    let tools = page(r#"{"tools": [{"name": "t"}], "ttlMs": 60, "cacheScope": "public"}"#);
    lists.record("a", ItemKind::Tool, "", None, &tools);
    let mut merger = PageMerger::new(&names, ItemKind::Tool, ["a", "b", "c"], None).unwrap();

    assert_eq!(merger.upcoming().collect::<Vec<_>>(), ["b", "c"]);
    let stale = lists.get("a", ItemKind::Tool, "", None).unwrap();
    merger.add_stale(&stale, |_| true).unwrap();
    merger.skip();
    merger.add_page(&tools, |_| true).unwrap();

    assert_eq!(merger.position(), None);
    let merged: Value = merger.finish().decode().unwrap();
    assert_eq!(
        merged,
        json!({
            "tools": [{"name": "a__t"}, {"name": "c__t"}], "ttlMs": 0, "cacheScope": "private",
            "_meta": {"bowline/stale": ["a"]},
        })
    );
}

#[test]
fn text_that_is_not_such_a_page_is_an_error_and_changes_nothing() {
    let names = names();
    let mut merger = PageMerger::new(&names, ItemKind::Tool, ["a", "b"], None).unwrap();

    for text in [
        "7",
        "{}",
        r#"{"tools": {}}"#,
        r#"{"tools": [], "tools": []}"#,
    ] {
        merger.add_page(&page(text), |_| true).unwrap_err();
    }
    assert_eq!(merger.position().unwrap().server(), "a");
    merger.skip();
    merger.skip();

    assert_eq!(merger.finish().as_str(), r#"{"tools":[],"ttlMs":0}"#);
}

#[test]
fn a_server_that_repeats_a_cursor_ends() {
    let names = names();
    let cursor = PageCursor::new("a", Some("x".to_owned()), names.generation()).encode();
    let mut merger = PageMerger::new(&names, ItemKind::Tool, ["a"], Some(&cursor)).unwrap();

    assert_eq!(merger.position().unwrap().cursor(), Some("x"));
    merger
        .add_page(&page(r#"{"tools": [], "nextCursor": "x"}"#), |_| true)
        .unwrap();

    assert_eq!(merger.finish().as_str(), r#"{"tools":[]}"#);
}

#[test]
fn a_large_page_ends_between_two_servers() {
    let names = names();
    let mut merger = PageMerger::new(&names, ItemKind::Tool, ["a", "b"], None).unwrap();
    let large = format!(
        r#"{{"tools": [{{"name": "t", "x": "{}"}}]}}"#,
        "x".repeat(5 << 20)
    );

    merger.add_page(&page(&large), |_| true).unwrap();

    assert_eq!(merger.position(), None);
    let merged: Value = merger.finish().decode().unwrap();
    let cursor = PageCursor::decode(merged["nextCursor"].as_str().unwrap(), names.generation());
    let cursor = cursor.unwrap();
    assert_eq!((cursor.server(), cursor.cursor()), ("b", None));
}

#[test]
fn a_cursor_of_another_configuration_or_of_a_hidden_server_is_refused() {
    let names = names();
    let error = |cursor: &PageCursor, servers: &[&str]| {
        let merger = PageMerger::new(
            &names,
            ItemKind::Tool,
            servers.iter().copied(),
            Some(&cursor.encode()),
        );
        let error = merger.unwrap_err();
        assert_eq!(error.code, ErrorCode::INVALID_PARAMS);
        error.message
    };

    let other = PageCursor::new("a", None, names.generation() + 1);
    assert!(error(&other, &["a"]).contains("list again without a cursor"));
    let hidden = PageCursor::new("a", None, names.generation());
    assert!(error(&hidden, &["b"]).contains("not available"));
}
