//! Carries out every attack, one after the other, and prints what each did to whom.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use crate::attack::{Attack, On, Running, Target};
use crate::cgroup::Cgroup;
use crate::honest::{self, Figures};
use crate::process::Attacked;
use crate::server::Setting;

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
        let cgroup = || uses_cgroups.then(|| Cgroup::make(&name, CONTAINER).unwrap());
        let outcome = runtime.block_on(async {
            match attack.on {
                On::Server(setting, attack) => on_server(setting, attack, cgroup()).await,
                On::Client(task, evil) => {
                    let mut outcome = on_client(task, evil, cgroup()).await;
                    if attack.item == ABOUT_TIME && outcome.blocked > MOST_BLOCKED {
                        let blocked = outcome.blocked;
                        let failure = format!("the client's thread was blocked for {blocked} ms");
                        outcome.failures.push(failure);
                    }
                    outcome
                }
            }
        });
        println!("test {} ... {}", attack.line(), outcome.verdict());
        println!("     {}", outcome.text());
        outcomes.push((attack, outcome));
    }
    runtime.shutdown_timeout(Duration::from_secs(1));
    report(&outcomes)
}

/// What an attack did.
#[derive(Debug, Default)]
struct Outcome {
    peak: u64,
    /// Seconds of processor time of the attacked process.
    cpu: f64,
    /// For how many milliseconds the only thread of an attacked client did one thing.
    blocked: u64,
    honest: String,
    note: String,
    seconds: f64,
    failures: Vec<String>,
}

impl Outcome {
    fn verdict(&self) -> &'static str {
        match self.failures.is_empty() {
            true => "ok",
            false => "FAILED",
        }
    }

    fn text(&self) -> String {
        let (peak, seconds, cpu) = (self.peak >> 20, self.seconds, self.cpu);
        let honest = &self.honest;
        // Of a process that has ended nobody tells.
        let cpu = if cpu > 0.0 {
            format!(", {cpu:.1} s of its processor")
        } else {
            String::new()
        };
        format!(
            "peak {peak} MiB, {honest}; {seconds:.1} s{cpu}; {}",
            self.note
        )
    }

    fn judge(&mut self, process: &Attacked) {
        self.peak = self.peak.max(process.peak());
        self.cpu = process.cpu();
        if self.peak >= MOST {
            let peak = self.peak >> 20;
            self.failures.push(format!(
                "a peak of {peak} MiB, the limit is {} MiB",
                MOST >> 20
            ));
        }
        self.failures.extend(process.complaints());
    }
}

async fn on_server(
    setting: Setting,
    attack: fn(Target) -> Running,
    cgroup: Option<Cgroup>,
) -> Outcome {
    let process = Arc::new(Attacked::start(&["--serve", setting.key()], cgroup));
    let address = async |word| process.told(word).await.and_then(|text| text.parse().ok());
    let (Some(http), Some(lines)) = (address("http ").await, address("lines ").await) else {
        panic!("the server did not start: {:?}", process.complaints());
    };
    let target = Target {
        http,
        lines,
        process: process.clone(),
    };
    let mut outcome = Outcome::default();
    let mut before = Figures::default();
    for _ in 0..3 {
        before.add(honest::once(&target, setting).await);
    }
    let begun = Instant::now();

    let stop = Arc::new(AtomicBool::new(false));
    let watching = honest::watch(target.clone(), setting, stop.clone());
    let (ended, _) = tokio::join!(run(attack(target.clone()), &stop), sample(&process, &stop));
    let during = tokio::task::spawn_blocking(|| watching.join().unwrap());
    let during = during.await.unwrap();
    let after = honest::once(&target, setting).await;

    outcome.seconds = begun.elapsed().as_secs_f64();
    match ended {
        Ok(note) => outcome.note = note,
        Err(failure) => outcome.failures.push(failure),
    }
    outcome.honest = format!(
        "honest {:.0} ms before, {:.0} ms worst of {} during ({} refused), {:.0} ms after",
        millis(before.median()),
        millis(during.worst()),
        during.times.len(),
        during.refused + after.refused,
        millis(after.worst()),
    );
    for (when, figures) in [("before", before), ("during", during), ("after", after)] {
        let failure = figures
            .failure
            .map(|why| format!("{when} the attack: {why}"));
        outcome.failures.extend(failure);
    }
    if let Some(status) = process.exit()
        && (setting != Setting::Leaving || !status.success())
    {
        outcome.failures.push(format!("the server died: {status}"));
    }
    outcome.judge(&process);
    outcome
}

async fn on_client(
    task: &str,
    attack: fn(std::net::TcpListener) -> Running,
    cgroup: Option<Cgroup>,
) -> Outcome {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    listener.set_nonblocking(true).unwrap();
    let mut outcome = Outcome::default();
    let begun = Instant::now();
    let process = Attacked::start(&["--client", task, &address], cgroup);

    let stop = Arc::new(AtomicBool::new(false));
    let serving = tokio::spawn(attack(listener));
    let ending = async {
        let ended = tokio::time::timeout(AT_MOST, process.ended()).await;
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
            .push(format!("the client still runs after {AT_MOST:?}")),
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
    outcome.judge(&process);
    outcome
}

/// Runs an attack, in time, and says to all others when it is over.
async fn run(attack: Running, stop: &AtomicBool) -> Result<String, String> {
    let ended = tokio::time::timeout(AT_MOST, attack).await;
    stop.store(true, Ordering::Relaxed);
    ended.unwrap_or_else(|_| Err(format!("the attack still runs after {AT_MOST:?}")))
}

/// Reads the peak again and again: a process that dies takes its own with it.
async fn sample(process: &Attacked, stop: &AtomicBool) {
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
            outcome.verdict(),
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

/// Whether a memory cgroup can be made; prints which.
fn can_use_cgroups() -> bool {
    let name = format!("bowline-hostile-{}-probe", std::process::id());
    match Cgroup::make(&name, CONTAINER) {
        Ok(_) => {
            println!(
                "each attacked process has a memory cgroup of {} MiB",
                CONTAINER >> 20
            );
            true
        }
        Err(error) => {
            println!("WITHOUT memory cgroups, only VmHWM is measured: {error}");
            false
        }
    }
}

/// Lets this process and its children have as many descriptors as the system allows.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: maximum,
        maximum,
    };
    let _ = setrlimit(Resource::Nofile, raised);
}

/// How many connections an attacker may open out of those that it wants: it and the server need a
/// descriptor each.
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

/// The most that an attacked process may ever have had in use.
const MOST: u64 = 256 << 20;
/// The container that the defaults are made for.
const CONTAINER: u64 = 512 << 20;
/// The finding about work that blocks a thread. Elsewhere a block is a message of 16 MiB that is read at once.
const ABOUT_TIME: &str = "A6";
/// How long a client's only thread may be blocked, in milliseconds; generous, for busy machines.
const MOST_BLOCKED: u64 = 2000;
const AT_MOST: Duration = Duration::from_secs(60);
