//! Runs the attacks one after the other, and prints their results.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::attack::{Attack, AttackFuture, AttackedSide, Target};
use crate::attacked_process::AttackedProcess;
use crate::attacked_server::ServerSetup;
use crate::cgroup::Cgroup;
use crate::honest_client::{self, Measurements};

pub(crate) fn main(arguments: &[String]) -> ExitCode {
    let words: Vec<&String> = arguments
        .iter()
        .filter(|word| !word.starts_with('-'))
        .collect();
    let wanted = |attack: &Attack| {
        words.is_empty()
            || words
                .iter()
                .any(|word| attack.line().contains(word.as_str()))
    };
    let attacks: Vec<Attack> = Attack::all().into_iter().filter(wanted).collect();
    if arguments.iter().any(|word| word == "--list") {
        attacks
            .iter()
            .for_each(|attack| println!("{}: test", attack.line()));
        return ExitCode::SUCCESS;
    }
    raise_descriptor_limit();
    let uses_cgroups = !arguments.iter().any(|word| word == "--no-cgroup") && can_use_cgroups();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    println!("\nrunning {} attacks", attacks.len());
    let mut outcomes = Vec::new();
    for (number, attack) in attacks.into_iter().enumerate() {
        let name = format!("bowline-hostile-{}-{number}", std::process::id());
        let cgroup = || uses_cgroups.then(|| Cgroup::create(&name, CGROUP_LIMIT).unwrap());
        let outcome = runtime.block_on(async {
            match attack.on {
                AttackedSide::Server(setup, attack) => on_server(setup, attack, cgroup()).await,
                AttackedSide::Client(task, serve) => {
                    let mut outcome = on_client(task, serve, cgroup()).await;
                    if attack.item == CPU_FINDING && outcome.blocked > MAX_BLOCKED_MS {
                        let blocked = outcome.blocked;
                        let failure = format!("the client's thread was blocked for {blocked} ms");
                        outcome.failures.push(failure);
                    }
                    outcome
                }
            }
        });
        println!("test {} ... {}", attack.line(), outcome.status());
        println!("     {}", outcome.text());
        outcomes.push((attack, outcome));
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    report(&outcomes)
}

/// The result of an attack.
#[derive(Debug, Default)]
struct Outcome {
    peak: u64,
    /// Seconds of processor time of the attacked process.
    cpu: f64,
    /// The longest time for which one task blocked the only thread of an attacked client, in milliseconds.
    blocked: u64,
    honest: String,
    note: String,
    seconds: f64,
    failures: Vec<String>,
}

impl Outcome {
    fn status(&self) -> &'static str {
        match self.failures.is_empty() {
            true => "ok",
            false => "FAILED",
        }
    }

    fn text(&self) -> String {
        let (peak, seconds, cpu) = (self.peak >> 20, self.seconds, self.cpu);
        let honest = &self.honest;
        // 0 means that the process has exited, so that the kernel no longer reports it.
        let cpu = if cpu > 0.0 {
            format!(", {cpu:.1} s of processor time")
        } else {
            String::new()
        };
        format!(
            "peak {peak} MiB, {honest}; {seconds:.1} s{cpu}; {}",
            self.note
        )
    }

    fn check_process(&mut self, process: &AttackedProcess) {
        self.peak = self.peak.max(process.peak());
        self.cpu = process.cpu();
        if self.peak >= MAX_PEAK {
            let peak = self.peak >> 20;
            self.failures.push(format!(
                "a peak of {peak} MiB exceeds the limit of {} MiB",
                MAX_PEAK >> 20
            ));
        }
        self.failures.extend(process.errors());
    }
}

async fn on_server(
    setup: ServerSetup,
    attack: fn(Target) -> AttackFuture,
    cgroup: Option<Cgroup>,
) -> Outcome {
    let process = Arc::new(AttackedProcess::start(&["--serve", setup.key()], cgroup));
    let address = async |word| {
        process
            .wait_for_line(word)
            .await
            .and_then(|text| text.parse().ok())
    };
    let (Some(http), Some(lines)) = (address("http ").await, address("lines ").await) else {
        panic!("the server did not start: {:?}", process.errors());
    };
    let target = Target {
        http,
        lines,
        process: process.clone(),
    };
    let mut outcome = Outcome::default();
    let mut before = Measurements::default();
    for _ in 0..3 {
        before.add(honest_client::once(&target, setup).await);
    }
    let begun = Instant::now();

    let stop = Arc::new(AtomicBool::new(false));
    let watching = honest_client::watch(target.clone(), setup, stop.clone());
    let (ended, _) = tokio::join!(run(attack(target.clone()), &stop), sample(&process, &stop));
    let during = tokio::task::spawn_blocking(|| watching.join().unwrap());
    let during = during.await.unwrap();
    let after = honest_client::once(&target, setup).await;

    outcome.seconds = begun.elapsed().as_secs_f64();
    match ended {
        Ok(note) => outcome.note = note,
        Err(failure) => outcome.failures.push(failure),
    }
    outcome.honest = format!(
        "honest {:.0} ms before, {:.0} ms worst of {} during ({} rejected), {:.0} ms after",
        millis(before.median()),
        millis(during.worst()),
        during.times.len(),
        during.refused + after.refused,
        millis(after.worst()),
    );
    for (when, measurements) in [("before", before), ("during", during), ("after", after)] {
        let failure = measurements
            .failure
            .map(|why| format!("{when} the attack: {why}"));
        outcome.failures.extend(failure);
    }
    if let Some(status) = process.exit()
        && (setup != ServerSetup::ShuttingDown || !status.success())
    {
        outcome.failures.push(format!("the server died: {status}"));
    }
    outcome.check_process(&process);
    outcome
}

async fn on_client(
    task: &str,
    attack: fn(std::net::TcpListener) -> AttackFuture,
    cgroup: Option<Cgroup>,
) -> Outcome {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    listener.set_nonblocking(true).unwrap();
    let mut outcome = Outcome::default();
    let begun = Instant::now();
    let process = AttackedProcess::start(&["--client", task, &address], cgroup);

    let stop = Arc::new(AtomicBool::new(false));
    let serving = tokio::spawn(attack(listener));
    let ending = async {
        let ended = tokio::time::timeout(TIME_LIMIT, process.ended()).await;
        stop.store(true, Ordering::Relaxed);
        ended
    };
    let (ended, _) = tokio::join!(ending, sample(&process, &stop));
    serving.abort();
    if let Ok(Ok(Err(failure))) = tokio::time::timeout(Duration::ZERO, serving).await {
        outcome.failures.push(failure);
    }

    outcome.seconds = begun.elapsed().as_secs_f64();
    match ended {
        Err(_) => outcome
            .failures
            .push(format!("the client still runs after {TIME_LIMIT:?}")),
        Ok(status) if !status.success() => {
            outcome
                .failures
                .push(format!("the client failed: {status}"));
        }
        Ok(_) => {}
    }
    let number = |word| process.find(word).and_then(|text| text.parse::<u64>().ok());
    outcome.peak = number("peak ").unwrap_or(0);
    outcome.blocked = number("gap ").unwrap_or(u64::MAX);
    outcome.honest = format!(
        "longest block of the client's thread {} ms",
        outcome.blocked
    );
    outcome.note = process.find("note ").unwrap_or_default();
    outcome.failures.extend(process.find("failure "));
    outcome.check_process(&process);
    outcome
}

/// Runs an attack with a time limit, and sets `stop` when it has ended.
async fn run(attack: AttackFuture, stop: &AtomicBool) -> Result<String, String> {
    let ended = tokio::time::timeout(TIME_LIMIT, attack).await;
    stop.store(true, Ordering::Relaxed);
    ended.unwrap_or_else(|_| Err(format!("the attack still runs after {TIME_LIMIT:?}")))
}

/// Polls the peak memory, which cannot be read after the process has died.
async fn sample(process: &AttackedProcess, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        process.peak();
        crate::pause::pause(Duration::from_millis(10)).await;
    }
}

fn report(outcomes: &[(Attack, Outcome)]) -> ExitCode {
    println!("\n  peak MiB  attack");
    for (attack, outcome) in outcomes {
        println!(
            "{:>10}  {:<6}  {}",
            outcome.peak >> 20,
            outcome.status(),
            attack.line()
        );
    }
    let failed: Vec<_> = outcomes
        .iter()
        .filter(|(_, outcome)| !outcome.failures.is_empty())
        .collect();
    for (attack, outcome) in &failed {
        println!(
            "\n---- {} ----\n{}",
            attack.line(),
            outcome.failures.join("\n")
        );
    }
    match failed.len() {
        0 => {
            println!("\ntest result: ok\n");
            ExitCode::SUCCESS
        }
        failed => {
            println!("\ntest result: FAILED. {failed} failed\n");
            ExitCode::FAILURE
        }
    }
}

/// Whether memory cgroups can be created; prints the result.
fn can_use_cgroups() -> bool {
    let name = format!("bowline-hostile-{}-probe", std::process::id());
    match Cgroup::create(&name, CGROUP_LIMIT) {
        Ok(_) => {
            println!(
                "each attacked process has a memory cgroup of {} MiB",
                CGROUP_LIMIT >> 20
            );
            true
        }
        Err(error) => {
            println!("NO memory cgroups, only VmHWM is checked: {error}");
            false
        }
    }
}

/// Raises the file descriptor limit of this process and its children to the maximum.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let _ = setrlimit(Resource::Nofile, raised);
}

/// Limits a number of connections by the file descriptor limit, of which attacker and server need one each.
pub(crate) fn connections(wanted: usize) -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let limit = limit.map_or(usize::MAX, |limit| {
        usize::try_from(limit).unwrap_or(usize::MAX)
    });
    wanted.min(limit.saturating_sub(200))
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// The limit of the peak memory of an attacked process.
const MAX_PEAK: u64 = 256 << 20;
/// The memory of the container for which the default limits are chosen.
const CGROUP_LIMIT: u64 = 512 << 20;
/// The finding about work that blocks a thread. Other attacks block it while a message of 16 MiB is decoded.
const CPU_FINDING: &str = "A6";
/// The limit for blocking a client's only thread, in milliseconds; generous, for busy machines.
const MAX_BLOCKED_MS: u64 = 2000;
/// Generous, so that a busy machine does not fail the test.
const TIME_LIMIT: Duration = Duration::from_secs(240);
