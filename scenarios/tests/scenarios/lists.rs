//! Lists: pagination, and changes at runtime.

use bowline::client::Change;
use bowline::types::{
    ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest,
    Method, PaginatedRequestParams, SubscriptionFilter,
};
use bowline::{Client, ErrorCode, Prompt, Resource, ResourceTemplate, Server};
use scenarios::{Scenario, ScenarioEnv, scenario};
use serde_json::{Value, json};

use crate::support::{echo, peer_error, tools, with_change};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            every_list_is_paginated_to_its_end,
            "tools:list:pagination",
            "resources:list:pagination",
            "resources:templates:pagination",
            "prompts:list:pagination",
            "pagination:exhaustion",
        ),
        scenario!(an_unknown_cursor_is_rejected, "pagination:invalid-cursor"),
        scenario!(
            changes_at_runtime_are_listed_and_announced,
            "tools:list-changed",
            "resources:list-changed",
            "prompts:list-changed",
            "mcpserver:register:post-connect",
        ),
        scenario!(
            a_list_changed_notification_fetches_nothing,
            "client:list-changed:signal-only",
        )
        .in_memory(),
    ]
}

fn five_of_each() -> Server {
    (0..5).fold(Server::new("five", "1").page_size(2), |server, n| {
        let template = format!("docs://t{n}/{{name}}");
        let template = ResourceTemplate::raw(template, format!("t{n}"), async |_, _| Ok("text"));
        server
            .tool(echo(&format!("tool{n}")))
            .prompt(Prompt::raw(format!("prompt{n}"), async |_, _| Ok("text")))
            .resource(Resource::text(
                format!("docs://{n}"),
                format!("r{n}"),
                "text",
            ))
            .resource_template(template.unwrap())
    })
}

/// The number of items on each page of a list, and the cursors between the pages.
async fn pages<M: Method<Params = PaginatedRequestParams>>(
    client: &Client,
    items: &str,
) -> (Vec<usize>, Vec<String>)
where
    M::Result: serde::Serialize,
{
    let (mut sizes, mut cursors) = (Vec::new(), Vec::new());
    let mut params = PaginatedRequestParams::default();
    loop {
        let page = client.request::<M>(&params).await.unwrap();
        let page: Value = serde_json::to_value(page).unwrap();
        sizes.push(page[items].as_array().unwrap().len());
        let Some(next) = page["nextCursor"].as_str() else {
            return (sizes, cursors);
        };
        cursors.push(next.to_owned());
        params.cursor = Some(next.into());
    }
}

async fn every_list_is_paginated_to_its_end(env: ScenarioEnv) {
    let client = env.connect(&five_of_each()).await;

    let all = [
        pages::<ListToolsRequest>(&client, "tools").await,
        pages::<ListResourcesRequest>(&client, "resources").await,
        pages::<ListResourceTemplatesRequest>(&client, "resourceTemplates").await,
        pages::<ListPromptsRequest>(&client, "prompts").await,
    ];

    for (sizes, cursors) in all {
        assert_eq!(sizes, [2, 2, 1]);
        assert_ne!(cursors[0], cursors[1]);
    }
}

async fn an_unknown_cursor_is_rejected(env: ScenarioEnv) {
    let client = env.connect(&five_of_each()).await;

    for method in [
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
    ] {
        let error = peer_error(
            client
                .request_raw(method, json!({"cursor": "made up"}))
                .await,
        );
        assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{method}");
    }
}

fn changing_server() -> Server {
    let server = Server::new("growing", "1")
        .prompt(Prompt::raw("first", async |_, _| Ok("text")))
        .resource(Resource::text("docs://first", "first", "text"));
    with_change(server, |server| {
        server.tools().add(echo("second")).unwrap();
        server
            .prompts()
            .add(Prompt::raw("second", async |_, _| Ok("text")));
        server
            .resources()
            .add(Resource::text("docs://second", "second", "text"));
    })
}

fn all_lists() -> SubscriptionFilter {
    let mut filter = SubscriptionFilter::default();
    filter.tools_list_changed = Some(true);
    filter.prompts_list_changed = Some(true);
    filter.resources_list_changed = Some(true);
    filter
}

async fn changes_at_runtime_are_listed_and_announced(env: ScenarioEnv) {
    let client = env.connect(&changing_server()).await;
    let mut changes = client.subscribe(all_lists()).await.unwrap();
    // A legacy server sends changes only after `notifications/initialized`, which precedes this request.
    assert_eq!(tools(&client).await.len(), 1);

    let receiving = async {
        let mut received = Vec::new();
        while received.len() < 3 {
            received.extend(changes.next().await.unwrap());
        }
        received
    };
    // In process a subscription makes progress only while it is polled.
    let (received, changed) = tokio::join!(receiving, client.call_tool("change", ()));

    assert_eq!(changed.unwrap().text(), "changed");
    let announced = [Change::Tools, Change::Prompts, Change::Resources];
    if env.is_replicated() {
        // Changes at another replica have no order.
        assert!(
            announced.iter().all(|change| received.contains(change)),
            "{received:?}"
        );
    } else {
        assert_eq!(received, announced);
    }
    assert_eq!(tools(&client).await.len(), 2);
    assert_eq!(client.call_tool("second", ()).await.unwrap().text(), "{}");
}

async fn a_list_changed_notification_fetches_nothing(env: ScenarioEnv) {
    let client = env.connect(&changing_server()).await;
    let mut changes = client.subscribe(all_lists()).await.unwrap();
    tools(&client).await;
    let record = env.wire_record().unwrap();
    record.clear();

    client.call_tool("change", ()).await.unwrap();
    for _ in 0..3 {
        changes.next().await.unwrap();
    }

    let sent = record.sent();
    assert_eq!(sent.len(), 1, "expected only the call: {sent:?}");
}
