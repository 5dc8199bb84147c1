//! A server for a SQLite database: queries that only read, statements that the user must confirm, tables as resources.
//!
//! `cargo run --example sqlite -- --db notes.db` serves that file over stdio. A client sees the tools `list_tables`,
//! `describe_table`, `query` and `execute`, the resource template `sqlite://{table}`, and suggestions for `{table}`.
//! SQLite blocks its thread, so its work runs on tokio's blocking pool, and it stops when its call is cancelled.

use bowline::prelude::*;
use bowline::schemars::{self, JsonSchema};
use bowline::server::{CompletionInput, not_found};
use bowline::types::Completion;
use rusqlite::{Connection, OpenFlags, Result as SqlResult, Row, ToSql};
use rusqlite::{limits::Limit, params_from_iter, types::ValueRef};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::task::spawn_blocking;

/// A database by its path. Each call opens a connection of its own.
#[derive(Clone)]
struct Database(std::path::PathBuf);

#[derive(Deserialize, JsonSchema)]
struct Statement {
    /// with `?1`, `?2`, … for parameters
    sql: String,
    #[serde(default)]
    parameters: Vec<Value>,
}

#[derive(Deserialize, JsonSchema)]
struct Consent {
    /// Run the statement?
    run: bool,
}

#[derive(Serialize, JsonSchema)]
struct Rows {
    rows: Vec<Map<String, Value>>,
    truncated: bool,
}

#[tools]
impl Database {
    /// Lists the tables and views.
    #[tool(read_only)]
    fn list_tables(&self, cx: Context) -> SqlResult<Structured<Vec<String>>> {
        self.tables(&cx).map(Structured)
    }

    /// Lists the columns of a table.
    #[tool(read_only)]
    fn describe_table(&self, cx: Context, table: String) -> Result<Structured<Rows>, ToolError> {
        if !self.tables(&cx)?.contains(&table) {
            return Err(format!("no table `{table}`; `list_tables` returns their names").into());
        }
        let sql = "SELECT name, type, \"notnull\", dflt_value, pk FROM pragma_table_info(?1)";
        Ok(Structured(self.select(&cx, sql, &[json!(table)])?))
    }

    /// Runs one statement that only reads, and returns at most 100 rows.
    #[tool(read_only)]
    fn query(&self, cx: Context, Args(run): Args<Statement>) -> SqlResult<Structured<Rows>> {
        self.select(&cx, &run.sql, &run.parameters).map(Structured)
    }

    /// Runs one statement that changes the database, if the user agrees.
    #[tool(destructive, requires(elicitation))]
    async fn execute(&self, cx: Context, Args(work): Args<Statement>) -> Result<String, ToolError> {
        let question = format!("Run `{}` with {}?", work.sql, json!(work.parameters));
        let Consent { run: true } = cx.elicit("consent", question).await? else {
            return Err("the user did not agree to run the statement".into());
        };
        let (database, context) = (self.clone(), cx.clone());
        let run = move || {
            let connection = database.open(&context, OpenFlags::default())?;
            let parameters = params_from_iter(work.parameters.iter().map(to_sql));
            connection.execute(&work.sql, parameters)
        };
        // A client that sends the user's answer twice does not run the statement twice.
        let run = async { Ok::<_, ToolError>(spawn_blocking(run).await??) };
        Ok(format!("{} rows changed", cx.try_once("run", run).await?))
    }

    /// The first rows of a table.
    #[resource(uri = "sqlite://{table}", mime_type = "application/json")]
    async fn rows(&self, cx: Context, table: String) -> Result<String, ToolError> {
        let database = self.clone();
        let rows = spawn_blocking(move || {
            if !database.tables(&cx)?.contains(&table) {
                return Err(ToolError::from(not_found(&format!("sqlite://{table}"))));
            }
            let sql = format!("SELECT * FROM \"{}\"", table.replace('"', "\"\""));
            Ok(database.select(&cx, &sql, &[])?)
        });
        Ok(serde_json::to_string(&rows.await??)?)
    }

    #[completion(template = "sqlite://{table}", argument = "table")]
    async fn names(&self, cx: Context, input: CompletionInput) -> Result<Completion, ToolError> {
        let database = self.clone();
        Ok(input.matching(spawn_blocking(move || database.tables(&cx)).await??))
    }

    /// Opens a connection whose statements end when the call is cancelled.
    fn open(&self, cx: &Context, flags: OpenFlags) -> SqlResult<Connection> {
        let mut connection = Connection::open_with_flags(&self.0, flags)?;
        let cx = std::panic::AssertUnwindSafe(cx.clone());
        connection.progress_handler(1000, Some(move || cx.is_cancelled()))?;
        // Otherwise `ATTACH` and `VACUUM INTO` reach other files.
        connection.set_limit(Limit::SQLITE_LIMIT_ATTACHED, 0)?;
        Ok(connection)
    }

    /// Runs a statement on a connection that cannot write.
    fn select(&self, cx: &Context, sql: &str, parameters: &[Value]) -> SqlResult<Rows> {
        let connection = self.open(cx, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut statement = connection.prepare(sql)?;
        let parameters = params_from_iter(parameters.iter().map(to_sql));
        let mut found = statement.query_map(parameters, to_json)?;
        let rows = found.by_ref().take(100).collect::<SqlResult<_>>()?;
        let truncated = found.next().is_some();
        Ok(Rows { rows, truncated })
    }

    fn tables(&self, cx: &Context) -> SqlResult<Vec<String>> {
        let connection = self.open(cx, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let sql = "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')";
        let mut statement = connection.prepare(sql)?;
        statement.query_map([], |row| row.get(0))?.collect()
    }
}

fn to_sql(parameter: &Value) -> &dyn ToSql {
    match parameter {
        Value::String(text) => text, // not as JSON, which has quotes
        other => other,
    }
}

fn to_json(row: &Row<'_>) -> SqlResult<Map<String, Value>> {
    let mut cells = Map::new();
    for (index, name) in row.as_ref().column_names().enumerate() {
        let cell = match row.get_ref(index)? {
            ValueRef::Null => Value::Null,
            ValueRef::Integer(number) => number.into(),
            ValueRef::Real(number) => number.into(),
            ValueRef::Text(text) => String::from_utf8_lossy(text).into(),
            ValueRef::Blob(bytes) => format!("{} bytes", bytes.len()).into(),
        };
        cells.insert(name.to_owned(), cell);
    }
    Ok(cells)
}

#[tokio::main]
async fn main() -> bowline::Result<()> {
    let Some(path) = std::env::args_os().skip_while(|word| word != "--db").nth(1) else {
        eprintln!("usage: sqlite --db PATH");
        std::process::exit(2);
    };
    Server::new("sqlite", "1.0.0")
        .toolbox(Database(path.into()))
        .serve_stdio()
        .await
}
