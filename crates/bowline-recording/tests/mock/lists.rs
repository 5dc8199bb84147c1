//! Lists with pages.

use serde_json::{Value, json};

use crate::recorded::{Era, PAIRS, Recorded, connect};

fn pages(era: Era) -> Recorded {
    let mut recorded = Recorded::new(era);
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let page = |names: &[&str], next: Option<&str>| {
        let tools: Vec<Value> = names.iter().map(|name| tool(name)).collect();
        let mut page = json!({"tools": tools});
        if let Some(next) = next {
            page["nextCursor"] = json!(next);
        }
        if era == Era::Modern {
            page["ttlMs"] = json!(0);
            page["cacheScope"] = json!("private");
        }
        page
    };
    recorded.exchange("tools/list", json!({}), page(&["a", "b"], Some("page 2")));
    recorded.exchange(
        "tools/list",
        json!({"cursor": "page 2"}),
        page(&["c"], Some("page 3")),
    );
    recorded.exchange(
        "tools/list",
        json!({"cursor": "page 3"}),
        page(&["d"], None),
    );
    recorded
}

#[tokio::test]
async fn the_pages_of_a_list_are_those_of_the_recording() {
    for (recorded_era, era) in PAIRS {
        let client = connect(&pages(recorded_era).mock(), era).await;

        let mut names = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let params = match &cursor {
                Some(cursor) => json!({"cursor": cursor}),
                None => json!({}),
            };
            let page = client.request_raw("tools/list", params).await.unwrap();
            let page: Value = page.decode().unwrap();
            let tools = page["tools"].as_array().unwrap();
            names.extend(
                tools
                    .iter()
                    .map(|tool| tool["name"].as_str().unwrap().to_owned()),
            );
            match page["nextCursor"].as_str() {
                Some(next) => cursor = Some(next.to_owned()),
                None => break,
            }
        }

        assert_eq!(names, ["a", "b", "c", "d"], "{recorded_era:?} {era:?}");
    }
}

#[tokio::test]
async fn a_recorded_output_schema_is_fulfilled_by_the_recorded_output() {
    for (recorded_era, era) in PAIRS {
        let mut recorded = Recorded::new(recorded_era);
        let schema = json!({"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"]});
        let tool =
            json!({"name": "add", "inputSchema": {"type": "object"}, "outputSchema": schema});
        recorded.exchange("tools/list", json!({}), json!({"tools": [tool]}));
        let result = json!({"content": [], "structuredContent": {"sum": 3}});
        recorded.exchange(
            "tools/call",
            json!({"name": "add", "arguments": {"a": 1}}),
            result,
        );

        let client = connect(&recorded.mock(), era).await;
        client.list_tools().await.unwrap();
        let sum: Value = client
            .call_tool("add", json!({"a": 1}))
            .await
            .unwrap()
            .structured()
            .unwrap();

        assert_eq!(sum, json!({"sum": 3}));
    }
}
