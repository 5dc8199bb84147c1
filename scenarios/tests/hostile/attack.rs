//! The type of an attack, and the list of all attacks.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use crate::attacked_process::AttackedProcess;
use crate::attacked_server::ServerSetup;

/// One attack.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    /// The finding that it reproduces, A1 to A8; B for attacks without one.
    pub(crate) item: &'static str,
    pub(crate) name: &'static str,
    pub(crate) on: AttackedSide,
}

/// The side that is attacked, and the function that attacks it.
#[derive(Clone, Copy)]
pub(crate) enum AttackedSide {
    /// A server with this setup, attacked by a peer.
    Server(ServerSetup, fn(Target) -> AttackFuture),
    /// A client that performs this task, attacked by a server.
    Client(&'static str, fn(std::net::TcpListener) -> AttackFuture),
}

/// A running attack. Returns a note for the table, or a failure.
pub(crate) type AttackFuture = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// The addresses and the process of an attacked server.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) http: SocketAddr,
    pub(crate) lines: SocketAddr,
    pub(crate) process: std::sync::Arc<AttackedProcess>,
}

impl Attack {
    pub(crate) fn all() -> Vec<Self> {
        let all = [
            crate::batches::attacks(),
            crate::bodies::attacks(),
            crate::unread_responses::attacks(),
            crate::stored_events::attacks(),
            crate::kept_state::attacks(),
            crate::queues::attacks(),
            crate::slow_work::attacks(),
            crate::shutdown::attacks(),
            crate::many_connections::attacks(),
            crate::open_heads::attacks(),
            crate::floods::attacks(),
            crate::extreme_json::attacks(),
        ];
        all.concat()
    }

    /// The name in the report.
    pub(crate) fn line(&self) -> String {
        let on = match self.on {
            AttackedSide::Server(ServerSetup::Default, _) => String::new(),
            AttackedSide::Server(setup, _) => format!(" ({} server)", setup.key()),
            AttackedSide::Client(..) => " (client)".to_owned(),
        };
        format!("{} {}{on}", self.item, self.name.replace('_', " "))
    }
}

/// Attacks on servers: the finding, the setup, and the function whose name describes the attack.
macro_rules! on_server {
    ($($item:literal $setup:ident $function:ident),* $(,)?) => {
        [$($crate::attack::Attack {
            item: $item,
            name: stringify!($function),
            on: $crate::attack::AttackedSide::Server(
                $crate::attacked_server::ServerSetup::$setup,
                |target| Box::pin($function(target)),
            ),
        }),*]
    };
}

/// Attacks on clients: the finding, the client's task, and the function.
macro_rules! on_client {
    ($($item:literal $task:literal $function:ident),* $(,)?) => {
        [$($crate::attack::Attack {
            item: $item,
            name: stringify!($function),
            on: $crate::attack::AttackedSide::Client($task, |listener| Box::pin($function(listener))),
        }),*]
    };
}

pub(crate) use {on_client, on_server};
