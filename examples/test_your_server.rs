//! A server and its tests: what it answers, and, over every transport and protocol version, what it does when a call is
//! dropped. All of it runs in memory, without waiting.
//!
//! `cargo test --example test_your_server` runs the tests. `cargo run --example test_your_server` is the server, on
//! standard input and output.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bowline::prelude::*;
use tokio::sync::Semaphore;

/// Coffee machines, each of which makes one cup at a time.
#[derive(Clone)]
struct Machines {
    free: Arc<Semaphore>,
    cups: Arc<AtomicU32>,
}

/// Makes coffee.
#[tool]
async fn brew(
    State(machines): State<Machines>,
    #[schemars(range(min = 1, max = 5))] strength: u32,
) -> Result<String, ToolError> {
    let _machine = machines.free.acquire().await?;
    tokio::time::sleep(std::time::Duration::from_secs(30)).await; // the machine works
    let cup = machines.cups.fetch_add(1, Relaxed) + 1;
    Ok(format!("cup {cup} of strength {strength}"))
}

fn server(machines: &Machines) -> Server {
    Server::new("kitchen", "1.0.0")
        .state(machines.clone())
        .tool(brew)
}

fn machines(count: usize) -> Machines {
    Machines {
        free: Arc::new(Semaphore::new(count)),
        cups: Arc::default(),
    }
}

#[tokio::main]
async fn main() -> bowline::Result<()> {
    server(&machines(2)).serve_stdio().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use bowline::testing::matrix;

    /// Duplicate names, invalid schemas and missing state are found without a client.
    #[tokio::test]
    async fn the_server_is_valid() -> bowline::Result<()> {
        server(&machines(1)).check()
    }

    /// A paused clock jumps to the next timer when all tasks wait: half a minute takes no time.
    #[tokio::test(start_paused = true)]
    async fn coffee_is_made() -> bowline::Result<()> {
        let client = Client::in_process(&server(&machines(1))).await?;

        let reply = client.call_tool("brew", json!({"strength": 3})).await?;

        assert_eq!(reply.text(), "cup 1 of strength 3");
        Ok(())
    }

    #[tokio::test]
    async fn the_model_learns_the_limits_of_an_argument() -> bowline::Result<()> {
        let client = Client::in_process(&server(&machines(1))).await?;

        let reply = client.call_tool("brew", json!({"strength": 6})).await?;

        assert!(reply.is_error());
        assert!(reply.text().contains("strength"), "{}", reply.text());
        Ok(())
    }

    /// The same on every transport, in every protocol version: a dropped call frees its machine for the next.
    #[tokio::test(start_paused = true)]
    async fn a_dropped_call_frees_the_machine() -> bowline::Result<()> {
        for case in matrix() {
            let machines = machines(1);
            let client = case.serve(&server(&machines)).connect.await?;
            let strong = json!({"strength": 5});

            let dropped = client.call_tool("brew", &strong).into_future();
            let second = std::time::Duration::from_secs(1);
            assert!(
                tokio::time::timeout(second, dropped).await.is_err(),
                "{case}"
            );
            let reply = client.call_tool("brew", &strong).await?;

            assert_eq!(reply.text(), "cup 1 of strength 5", "{case}");
            client.close().await?;
        }
        Ok(())
    }
}
