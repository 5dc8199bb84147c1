//! Servers over stdio, started by a client as a host would.

use std::path::Path;
use std::time::Duration;

use bowline::client::{Change, ChangeFilter, Host};
use bowline::types::{ElicitAction, ElicitResult, ResourceContents, ResourceTemplateReference};
use bowline::{Client, Error, ErrorCode};
use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::sync::mpsc::unbounded_channel;

use crate::support::{TemporaryFolder, command, in_time};

#[tokio::test]
async fn hello_greets_the_world() {
    in_time(async {
        let client = Client::spawn(command("hello")).await.unwrap();

        let reply = client.call_tool("hello", ()).await.unwrap();

        assert_eq!(reply.text(), "Hello, world!");
        client.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn calculator_adds() {
    in_time(async {
        let client = Client::spawn(command("calculator")).await.unwrap();

        let tools = client.list_tools().await.unwrap();
        let reply = client.call_tool("add", json!({"a": 1, "b": 2})).await;

        assert_eq!(tools[0].description.as_deref(), Some("Adds two numbers."));
        let reply = reply.unwrap();
        assert_eq!(reply.text(), "3");
        assert_eq!(reply.structured::<i64>().unwrap(), 3);
        client.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn files_are_listed_read_and_completed() {
    let folder = TemporaryFolder::new("files");
    std::fs::create_dir(folder.path("open")).unwrap();
    std::fs::write(folder.path("secret"), "hush").unwrap();
    for name in ["apple.txt", "apricot.txt", "pear.txt"] {
        std::fs::write(folder.path("open").join(name), format!("an {name}")).unwrap();
    }
    in_time(async {
        let served = command("files").arg(folder.path("open"));
        let client = Client::spawn(served).await.unwrap();

        let index = read(&client, "files://index").await.unwrap();
        let apple = read(&client, "files://text/apple.txt").await.unwrap();
        let template = ResourceTemplateReference::new("files://text/{name}");
        let suggested = client.complete(template, "name", "ap").await.unwrap();

        assert_eq!(index, "apple.txt\napricot.txt\npear.txt");
        assert_eq!(apple, "an apple.txt");
        assert_eq!(suggested.values, ["apple.txt", "apricot.txt"]);
        for uri in ["files://text/none.txt", "files://text/..%2Fsecret"] {
            let refused = read(&client, uri).await;
            assert!(
                matches!(&refused, Err(Error::Rpc(error)) if error.code == ErrorCode::RESOURCE_NOT_FOUND),
                "{uri}: {refused:?}"
            );
        }
        client.close().await.unwrap();
    })
    .await;
}

async fn read(client: &Client, uri: &str) -> bowline::Result<String> {
    match client.read_resource(uri).await?.contents.swap_remove(0) {
        ResourceContents::Text(part) => Ok(part.text),
        ResourceContents::Blob(part) => panic!("{uri} is binary: {part:?}"),
    }
}

/// A client of the example, with a user who agrees to statements that do not contain `DROP`.
async fn sqlite(database: &Path) -> Client {
    let served = command("sqlite").args(["--db".as_ref(), database.as_os_str()]);
    let host = Host::new().elicitation(async |form| match form.message.contains("DROP") {
        true => ElicitResult::new(ElicitAction::Decline),
        false => ElicitResult::accept(json!({"run": true})),
    });
    Client::spawn(served).host(host).await.unwrap()
}

async fn tool(client: &Client, name: &str, arguments: Value) -> Result<String, String> {
    let reply = client.call_tool(name, arguments).await.unwrap();
    match reply.is_error() {
        true => Err(reply.text()),
        false => Ok(reply.text()),
    }
}

const INSERT: &str = "INSERT INTO fruit VALUES (?1, ?2)";

#[tokio::test]
async fn sqlite_reads_and_writes() {
    let folder = TemporaryFolder::new("sqlite");
    in_time(async {
        let client = sqlite(&folder.path("fruit.db")).await;
        let execute = async |sql: &str, parameters| {
            tool(
                &client,
                "execute",
                json!({"sql": sql, "parameters": parameters}),
            )
            .await
        };

        let created = execute(
            "CREATE TABLE fruit (name TEXT NOT NULL, price REAL)",
            json!([]),
        )
        .await;
        assert_eq!(created.unwrap(), "0 rows changed");
        for fruit in [json!(["apple", 1.5]), json!(["pear", null])] {
            assert_eq!(execute(INSERT, fruit).await.unwrap(), "1 rows changed");
        }
        let declined = execute("DROP TABLE fruit", json!([])).await;
        assert_eq!(declined.unwrap_err(), "the user declined to answer");

        let query = json!({"sql": "SELECT * FROM fruit WHERE name > ?1", "parameters": ["b"]});
        let found = client.call_tool("query", query).await.unwrap();
        let pear = json!({"rows": [{"name": "pear", "price": null}], "truncated": false});
        assert_eq!(found.structured::<Value>().unwrap(), pear);
        let many =
            "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
        let found = client
            .call_tool("query", json!({"sql": many}))
            .await
            .unwrap();
        let found: Value = found.structured().unwrap();
        assert_eq!(
            (&found["rows"][99], &found["truncated"]),
            (&json!({"i": 100}), &json!(true))
        );

        let tables = client.call_tool("list_tables", ()).await.unwrap();
        assert_eq!(tables.structured::<Vec<String>>().unwrap(), ["fruit"]);
        let described = client
            .call_tool("describe_table", json!({"table": "fruit"}))
            .await;
        let described: Value = described.unwrap().structured().unwrap();
        let name =
            json!({"name": "name", "type": "TEXT", "notnull": 1, "dflt_value": null, "pk": 0});
        assert_eq!(described["rows"][0], name);
        let rows = read(&client, "sqlite://fruit").await.unwrap();
        assert!(rows.contains(r#""name":"apple""#), "{rows}");
        let template = ResourceTemplateReference::new("sqlite://{table}");
        let suggested = client.complete(template, "table", "fr").await.unwrap();
        assert_eq!(suggested.values, ["fruit"]);
        client.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn sqlite_refuses_what_the_model_can_correct() {
    let folder = TemporaryFolder::new("sqlite-errors");
    let database = folder.path("fruit.db");
    let create = "CREATE TABLE fruit (name)";
    Connection::open(&database)
        .unwrap()
        .execute(create, [])
        .unwrap();
    let other = folder.path("other.db").display().to_string();
    in_time(async {
        let client = sqlite(&database).await;
        let query = async |sql: &str| {
            tool(&client, "query", json!({"sql": sql}))
                .await
                .unwrap_err()
        };

        let syntax = query("SELEC").await;
        assert!(syntax.contains("syntax error"), "{syntax}");
        for sql in [
            "DELETE FROM fruit",
            "INSERT INTO fruit VALUES (1) RETURNING *",
        ] {
            let write = query(sql).await;
            assert!(write.contains("readonly database"), "{write}");
        }
        for sql in [
            format!("ATTACH '{other}' AS o"),
            format!("VACUUM INTO '{other}'"),
        ] {
            let attached = query(&sql).await;
            assert!(attached.contains("too many attached"), "{attached}");
        }
        let unknown = tool(&client, "describe_table", json!({"table": "nuts"})).await;
        assert_eq!(
            unknown.unwrap_err(),
            "no table `nuts`; `list_tables` returns their names"
        );
        let missing = read(&client, "sqlite://nuts").await;
        assert!(matches!(missing, Err(Error::Rpc(_))), "{missing:?}");
        client.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn sqlite_stops_a_query_whose_call_is_dropped() {
    let folder = TemporaryFolder::new("sqlite-cancel");
    let database = folder.path("fruit.db");
    let observer = Connection::open(&database).unwrap();
    observer
        .execute_batch("CREATE TABLE fruit (name); INSERT INTO fruit VALUES ('pear')")
        .unwrap();
    // While a query reads, it holds a shared lock.
    let lock = |timeout| {
        observer.busy_timeout(timeout)?;
        observer.execute_batch("BEGIN EXCLUSIVE; ROLLBACK")
    };
    in_time(async {
        let client = sqlite(&database).await;
        let endless = "WITH RECURSIVE n AS (SELECT 1 FROM fruit UNION ALL SELECT 1 FROM n, fruit) \
                       SELECT count(*) FROM n";

        let mut call = client.call_tool("query", json!({"sql": endless})).start();
        while lock(Duration::ZERO).is_ok() {
            tokio::select! {
                biased;
                reply = &mut call => panic!("{reply:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
        drop(call);

        client.ping().await.unwrap(); // the cancel is sent before it
        lock(Duration::from_secs(50)).unwrap();
        client.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn long_job_cleans_up_when_its_call_is_dropped() {
    let (lines, mut stderr) = unbounded_channel();
    let served = command("long_job").on_stderr(move |line| {
        let _ = lines.send(line.to_owned());
    });
    in_time(async {
        let client = Client::spawn(served).await.unwrap();
        let (reports, mut progress) = unbounded_channel();

        let call = client
            .call_tool("render", json!({"frames": 1000, "milliseconds": 60}))
            .on_progress(move |report| {
                let _ = reports.send(report.message);
            })
            .start();
        let folder = tokio::select! {
            reply = call => panic!("{reply:?}"),
            folder = progress.recv() => folder.unwrap().unwrap(), // and the call is dropped
        };

        assert_eq!(stderr.recv().await.unwrap(), format!("removed {folder}"));
        assert!(!Path::new(&folder).exists());
        client.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn long_job_reports_each_frame() {
    in_time(async {
        let client = Client::spawn(command("long_job")).await.unwrap();
        let (reports, mut progress) = unbounded_channel();

        let reply = client
            .call_tool("render", json!({"frames": 2, "milliseconds": 0}))
            .on_progress(move |report| {
                let _ = reports.send((report.progress, report.total));
            })
            .await;

        assert_eq!(reply.unwrap().text(), "rendered 2 frames");
        assert_eq!(progress.recv().await, Some((1.0, Some(2.0))));
        assert_eq!(progress.recv().await, Some((2.0, Some(2.0))));
        client.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn dynamic_tools_come_and_go() {
    in_time(async {
        let client = Client::spawn(command("dynamic_tools")).await.unwrap();
        let mut changes = client.subscribe(ChangeFilter::new().tools()).await.unwrap();

        let lesson = json!({"name": "motto", "text": "Hold fast."});
        let taught = tool(&client, "teach", lesson).await;
        assert_eq!(taught.unwrap(), "`motto` is a tool now");
        assert_eq!(changes.next().await.unwrap(), Some(Change::Tools));
        assert_eq!(
            tool(&client, "motto", json!({})).await.unwrap(),
            "Hold fast."
        );

        let forgotten = tool(&client, "forget", json!({"name": "motto"})).await;
        assert_eq!(forgotten.unwrap(), "`motto` is forgotten");
        assert_eq!(changes.next().await.unwrap(), Some(Change::Tools));
        let tools = client.list_tools().await.unwrap();
        let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
        assert_eq!(names, ["forget", "teach"]);
        let refused = tool(&client, "forget", json!({"name": "teach"})).await;
        assert!(refused.is_err());
        client.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn test_your_server_serves() {
    in_time(async {
        let client = Client::spawn(command("test_your_server")).await.unwrap();

        let reply = tool(&client, "brew", json!({"strength": 6})).await;

        assert!(reply.unwrap_err().contains("strength"));
        client.close().await.unwrap();
    })
    .await;
}
