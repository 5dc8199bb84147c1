//! An honest client, which asks the attacked server before, during and after an attack.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use bowline::Client;
use bowline::wire::Lines;
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::attack::Target;
use crate::rpc;
use crate::server::Setting;

/// How an honest client reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Modern,
    Legacy,
    Lines,
}

/// What the honest client saw.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    /// How long each question took, refusals and retries included.
    pub(crate) times: Vec<Duration>,
    /// How often it was refused and asked again.
    pub(crate) refused: usize,
    pub(crate) failure: Option<String>,
}

impl Figures {
    pub(crate) fn median(&self) -> Duration {
        let mut times = self.times.clone();
        times.sort();
        times.get(times.len() / 2).copied().unwrap_or_default()
    }

    pub(crate) fn worst(&self) -> Duration {
        self.times.iter().copied().max().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.times.extend(other.times);
        self.refused += other.refused;
        self.failure = self.failure.take().or(other.failure);
    }
}

/// The ways to a server of this setting.
pub(crate) fn ways(setting: Setting) -> &'static [Way] {
    match setting {
        Setting::Leaving => &[],
        Setting::ModernOnly => &[Way::Modern, Way::Lines],
        _ => &[Way::Modern, Way::Legacy, Way::Lines],
    }
}

/// Asks again and again, each way in turn, until told to stop; on a thread of its own, so that the attackers' work does
/// not count as the server's.
pub(crate) fn watch(
    target: Target,
    setting: Setting,
    stop: Arc<AtomicBool>,
) -> JoinHandle<Figures> {
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(ask_on(target, setting, stop))
    })
}

async fn ask_on(target: Target, setting: Setting, stop: Arc<AtomicBool>) -> Figures {
    let mut figures = Figures::default();
    // Where there are four places the attacker has them all, as long as it stays.
    if setting == Setting::FourRequests {
        return figures;
    }
    while !stop.load(Ordering::Relaxed) && figures.failure.is_none() {
        figures.add(once(&target, setting).await);
        crate::pause::pause(Duration::from_millis(50)).await;
    }
    figures
}

/// Asks once each way.
pub(crate) async fn once(target: &Target, setting: Setting) -> Figures {
    let mut figures = Figures::default();
    for way in ways(setting) {
        let begun = Instant::now();
        let mut last = String::new();
        let asking = async {
            loop {
                match ask(target, *way).await {
                    Ok(()) => return,
                    Err(error) => last = error,
                }
                figures.refused += 1;
                crate::pause::pause(Duration::from_millis(20)).await;
            }
        };
        let answered = tokio::time::timeout(DEADLINE, asking).await;
        figures.times.push(begun.elapsed());
        if answered.is_err() {
            let failure = format!("not answered within {DEADLINE:?} ({way:?}): {last}");
            figures.failure.get_or_insert(failure);
            break;
        }
    }
    figures
}

/// Connects anew, calls a tool, and closes.
async fn ask(target: &Target, way: Way) -> Result<(), String> {
    let url = format!("http://{}/mcp", target.http);
    let client = match way {
        Way::Modern => Client::connect(&url).speaking(rpc::MODERN).await,
        Way::Legacy => Client::connect(&url).speaking(rpc::LEGACY).await,
        Way::Lines => {
            let stream = TcpStream::connect(target.lines).await;
            Client::over(Lines::tcp(stream.map_err(text)?)).await
        }
    };
    let client = client.map_err(text)?;
    let reply = client.call_tool("echo", json!({"text": "still there?"}));
    let reply = reply.await.map_err(text)?;
    if reply.text() != "still there?" {
        return Err(format!("a wrong answer: {:?}", reply.text()));
    }
    client.close().await.map_err(text)
}

/// An error with its causes.
fn text(error: impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}

/// Generous: timings must not decide on a busy machine, being answered must.
const DEADLINE: Duration = Duration::from_secs(20);
