//! Lists: page by page, and how they change while the server runs.

use bowline::client::Change;
use bowline::types::{
    ListPromptsRequest, ListResourceTemplatesRequest, ListResourcesRequest, ListToolsRequest,
    Method, PaginatedRequestParams, SubscriptionFilter,
};
use bowline::{Client, ErrorCode, Prompt, Resource, ResourceTemplate, Server};
use scenarios::{Scenario, World, scenario};
use serde_json::{Value, json};

use crate::support::{echo, refusal, tools, with_change};

pub(crate) fn scenarios() -> Vec<Scenario> {
    vec![
        scenario!(
            every_list_comes_page_by_page_to_its_end,
            "tools:list:pagination",
            "resources:list:pagination",
            "resources:templates:pagination",
            "prompts:list:pagination",
            "pagination:exhaustion",
        ),
        scenario!(
            a_cursor_that_was_not_given_is_refused,
            "pagination:invalid-cursor"
        ),
        scenario!(
            what_changes_while_the_server_runs_is_there_and_is_announced,
            "tools:list-changed",
            "resources:list-changed",
            "prompts:list-changed",
            "mcpserver:register:post-connect",
        ),
        scenario!(
            a_change_is_heard_and_nothing_is_fetched_for_it,
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

/// How many are on each page of a list, and the cursors between them.
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

async fn every_list_comes_page_by_page_to_its_end(world: World) {
    let client = world.connect(&five_of_each()).await;

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

async fn a_cursor_that_was_not_given_is_refused(world: World) {
    let client = world.connect(&five_of_each()).await;

    for method in [
        "tools/list",
        "resources/list",
        "resources/templates/list",
        "prompts/list",
    ] {
        let error = refusal(client.raw(method, json!({"cursor": "made up"})).await);
        assert_eq!(error.code, ErrorCode::INVALID_PARAMS, "{method}");
    }
}

fn growing() -> Server {
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

async fn what_changes_while_the_server_runs_is_there_and_is_announced(world: World) {
    let client = world.connect(&growing()).await;
    let mut changes = client.subscribe(all_lists()).await.unwrap();
    // A server with a handshake tells of changes once it has heard that the client is ready.
    assert_eq!(tools(&client).await.len(), 1);

    let telling = async {
        let mut told = Vec::new();
        while told.len() < 3 {
            told.extend(changes.next().await.unwrap());
        }
        told
    };
    // In process a subscription only goes on while somebody listens.
    let (told, changed) = tokio::join!(telling, client.call_tool("change", ()));

    assert_eq!(changed.unwrap().text(), "changed");
    assert_eq!(told, [Change::Tools, Change::Prompts, Change::Resources]);
    assert_eq!(tools(&client).await.len(), 2);
    assert_eq!(client.call_tool("second", ()).await.unwrap().text(), "{}");
}

async fn a_change_is_heard_and_nothing_is_fetched_for_it(world: World) {
    let client = world.connect(&growing()).await;
    let mut changes = client.subscribe(all_lists()).await.unwrap();
    tools(&client).await;
    let tapped = world.tapped().unwrap();
    tapped.clear();

    client.call_tool("change", ()).await.unwrap();
    for _ in 0..3 {
        changes.next().await.unwrap();
    }

    let sent = tapped.sent();
    assert_eq!(sent.len(), 1, "only the call: {sent:?}");
}
