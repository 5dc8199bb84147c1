//! Tasks of several principals.

use bowline::Tool;
use bowline_tasks::{TaskSettings, Tasks};
use serde_json::json;

use crate::support::{TestClient, server, store};

#[tokio::test(start_paused = true)]
async fn two_principals_cannot_see_update_cancel_or_listen_to_each_others_tasks() {
    let hangs = Tool::new("hangs", async || std::future::pending::<String>().await);
    let server = server(
        Tasks::new(store()),
        [hangs.with_settings(TaskSettings::new())],
    );
    let mut ada = TestClient::of_principal(&server, "ada");
    let mut eve = TestClient::of_principal(&server, "eve");
    let mut anonymous = TestClient::new(&server);
    let of_ada = ada.start("hangs").await;
    let of_anonymous = anonymous.start("hangs").await;
    let unknown = eve.get("AAAAAAAAAAAAAAAAAAAAAAAA").await.unwrap_err();

    for (client, task) in [
        (&mut eve, &of_ada),
        (&mut anonymous, &of_ada),
        (&mut ada, &of_anonymous),
    ] {
        // The same as of a task that does not exist.
        assert_eq!(client.get(task).await.unwrap_err(), unknown);
        assert_eq!(
            client.update(task, json!({"x": {}})).await.unwrap_err(),
            unknown
        );
        assert_eq!(client.cancel(task).await.unwrap_err(), unknown);
        assert_eq!(client.listen(&[task]).await, json!([]));
    }

    assert_eq!(ada.get(&of_ada).await.unwrap()["status"], "working");
    assert_eq!(
        anonymous.get(&of_anonymous).await.unwrap()["status"],
        "working"
    );
    for client in [&mut eve, &mut ada, &mut anonymous] {
        client.expect_nothing().await;
    }
}
