//! What an attack is, and the list of all of them.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use crate::process::Attacked;
use crate::server::Setting;

/// One attack.
#[derive(Clone, Copy)]
pub(crate) struct Attack {
    /// The number of the finding that it comes from: A1 to A7; B for those beyond them.
    pub(crate) item: &'static str,
    pub(crate) name: &'static str,
    pub(crate) on: On,
}

/// Which side is attacked.
#[derive(Clone, Copy)]
pub(crate) enum On {
    /// A server, by a peer that is this function.
    Server(Setting, fn(Target) -> Running),
    /// A client that performs this task, by a server that is this function.
    Client(&'static str, fn(std::net::TcpListener) -> Running),
}

/// An attack under way. Ends with a note for the table, or with what went wrong.
pub(crate) type Running = Pin<Box<dyn Future<Output = Result<String, String>> + Send>>;

/// A server that is attacked.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) http: SocketAddr,
    pub(crate) lines: SocketAddr,
    pub(crate) process: std::sync::Arc<Attacked>,
}

impl Attack {
    pub(crate) fn all() -> Vec<Self> {
        let all = [
            crate::batches::attacks(),
            crate::bodies::attacks(),
            crate::unread::attacks(),
            crate::events::attacks(),
            crate::queues::attacks(),
            crate::slow_work::attacks(),
            crate::shutdown::attacks(),
            crate::crowds::attacks(),
            crate::floods::attacks(),
            crate::nonsense::attacks(),
        ];
        all.concat()
    }

    /// The line under which it is reported.
    pub(crate) fn line(&self) -> String {
        let on = match self.on {
            On::Server(Setting::Default, _) => String::new(),
            On::Server(setting, _) => format!(" ({} server)", setting.key()),
            On::Client(..) => " (client)".to_owned(),
        };
        format!("{} {}{on}", self.item, self.name.replace('_', " "))
    }
}

/// Attacks on servers: the number of the finding, the setting, the function, whose name is the sentence.
macro_rules! on_server {
    ($($item:literal $setting:ident $function:ident),* $(,)?) => {
        [$($crate::attack::Attack {
            item: $item,
            name: stringify!($function),
            on: $crate::attack::On::Server(
                $crate::server::Setting::$setting,
                |target| Box::pin($function(target)),
            ),
        }),*]
    };
}

/// Attacks on clients: the number of the finding, the client's task, the function.
macro_rules! on_client {
    ($($item:literal $task:literal $function:ident),* $(,)?) => {
        [$($crate::attack::Attack {
            item: $item,
            name: stringify!($function),
            on: $crate::attack::On::Client($task, |listener| Box::pin($function(listener))),
        }),*]
    };
}

pub(crate) use {on_client, on_server};
