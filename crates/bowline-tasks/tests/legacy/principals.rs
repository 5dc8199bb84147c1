//! Tasks of several principals, and their lists.

use bowline::{Tool, ToolError};
use bowline_tasks::{TaskSettings, Tasks};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::{SECOND, TestClient, server, store, works_for};

async fn list(client: &mut TestClient, cursor: Option<&Value>) -> Value {
    let params = match cursor {
        Some(cursor) => json!({"cursor": cursor}),
        None => json!({}),
    };
    client.request("tasks/list", params).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn two_principals_cannot_access_each_others_tasks() {
    let works = works_for(600 * SECOND).with_settings(TaskSettings::new());
    let server = server(Tasks::new(store()), [works]);
    let mut ada = TestClient::of_principal(&server, "ada").await;
    let mut eve = TestClient::of_principal(&server, "eve").await;
    let mut anonymous = TestClient::connect(&server).await;
    let of_ada = ada.start("works").await;
    let of_anonymous = anonymous.start("works").await;
    let unknown = eve.get("AAAAAAAAAAAAAAAAAAAAAAAA").await.unwrap_err();

    for (client, task) in [
        (&mut eve, &of_ada),
        (&mut anonymous, &of_ada),
        (&mut ada, &of_anonymous),
    ] {
        // The same as of a task that does not exist.
        assert_eq!(client.get(task).await.unwrap_err(), unknown);
        assert_eq!(client.result(task).await.unwrap_err(), unknown);
        assert_eq!(client.cancel(task).await.unwrap_err(), unknown);
    }

    assert_eq!(ada.get(&of_ada).await.unwrap()["status"], "working");
    assert_eq!(list(&mut eve, None).await, json!({"tasks": []}));
    let listed = list(&mut ada, None).await;
    assert_eq!(listed, json!({"tasks": [ada.get(&of_ada).await.unwrap()]}));
}

#[tokio::test(start_paused = true)]
async fn a_list_is_for_identified_principals_only() {
    let works = works_for(SECOND).with_settings(TaskSettings::new());
    let server = server(Tasks::new(store()), [works]);
    let mut ada = TestClient::of_principal(&server, "ada").await;
    let mut anonymous = TestClient::connect(&server).await;
    anonymous.start("works").await;

    let error = anonymous.request("tasks/list", json!({})).await;
    assert_eq!(error.unwrap_err()["code"], -32601);
    let requests = json!({"tools": {"call": {}}});
    let tasks = json!({"cancel": {}, "requests": requests});
    assert_eq!(anonymous.capabilities["tasks"], tasks);
    let tasks = json!({"cancel": {}, "list": {}, "requests": requests});
    assert_eq!(ada.capabilities["tasks"], tasks);
    assert_eq!(list(&mut ada, None).await, json!({"tasks": []}));
}

#[tokio::test(start_paused = true)]
async fn a_list_has_pages_in_the_order_of_creation() {
    let works = works_for(SECOND).with_settings(TaskSettings::new());
    let server = server(Tasks::new(store()), [works]);
    let mut ada = TestClient::of_principal(&server, "ada").await;
    let mut created = Vec::new();
    for _ in 0..120 {
        created.push(ada.start("works").await);
        sleep(SECOND / 1000).await;
    }

    let (mut listed, mut pages) = (Vec::new(), 0);
    let mut cursor = None;
    loop {
        let page = list(&mut ada, cursor.as_ref()).await;
        pages += 1;
        let ids = page["tasks"].as_array().unwrap().iter();
        listed.extend(ids.map(|task| task["taskId"].as_str().unwrap().to_owned()));
        cursor = page.get("nextCursor").cloned();
        if cursor.is_none() {
            break;
        }
    }

    assert_eq!(listed, created);
    assert_eq!(pages, 3);
    for cursor in [json!("x"), json!(""), json!(7)] {
        let params = json!({"cursor": cursor});
        let error = ada.request("tasks/list", params).await.unwrap_err();
        assert_eq!(error["code"], -32602, "{cursor}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_listed_task_is_the_same_as_one_that_is_got() {
    let fails = async || Err::<String, _>(ToolError::new("out of paper"));
    let fails = Tool::new("fails", fails).with_settings(TaskSettings::new());
    let works = works_for(SECOND).with_settings(TaskSettings::new());
    let server = server(Tasks::new(store()), [fails, works]);
    let mut ada = TestClient::of_principal(&server, "ada").await;
    let failed = ada.start("fails").await;
    sleep(SECOND).await;
    let completed = ada.start("works").await;
    ada.result(&completed).await.unwrap();

    let listed = list(&mut ada, None).await;

    let (failed, completed) = (ada.get(&failed).await, ada.get(&completed).await);
    let expected = [failed.unwrap(), completed.unwrap()];
    assert_eq!(listed["tasks"], json!(expected));
    assert_eq!(listed["tasks"][0]["status"], "failed");
    assert_eq!(listed["tasks"][1]["status"], "completed");
}
