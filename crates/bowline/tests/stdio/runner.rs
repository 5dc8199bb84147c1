//! A test runner in the manner of libtest, as far as cargo and nextest need it.

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::time::Duration;

/// One test and its name.
pub(crate) struct Test {
    pub(crate) name: &'static str,
    pub(crate) run: fn() -> Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// Makes [`Test`]s of async functions.
macro_rules! tests {
    ($($module:ident :: $name:ident),* $(,)?) => {
        [$(crate::runner::Test {
            name: concat!(stringify!($module), "::", stringify!($name)),
            run: || Box::pin(crate::$module::$name()),
        }),*]
    };
}
pub(crate) use tests;

/// Runs the tests that the command line asks for, or lists them.
pub(crate) fn run(tests: &[Test]) -> ExitCode {
    let asked = Asked::from_args(std::env::args().skip(1));
    let chosen = || tests.iter().filter(|test| asked.includes(test.name));
    if asked.list {
        chosen().for_each(|test| println!("{}: test", test.name));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", chosen().count());
    let failed = chosen().filter(|test| !passes(test)).count();
    println!("\ntest result: {failed} failed\n");
    if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn passes(test: &Test) -> bool {
    let future = (test.run)();
    let ran = std::thread::spawn(|| {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        let ran = runtime.block_on(async { tokio::time::timeout(LIMIT, future).await });
        runtime.shutdown_timeout(SHUTDOWN); // a blocked thread of a test that failed is left behind
        ran.expect("a test ends in time");
    });
    let passed = ran.join().is_ok();
    println!(
        "test {} ... {}",
        test.name,
        if passed { "ok" } else { "FAILED" }
    );
    passed
}

/// What the command line asks for.
#[derive(Default)]
struct Asked {
    list: bool,
    ignored: bool,
    exact: bool,
    filters: Vec<String>,
    skipped: Vec<String>,
}

impl Asked {
    fn from_args(mut args: impl Iterator<Item = String>) -> Self {
        let mut asked = Self::default();
        while let Some(arg) = args.next() {
            match &*arg {
                "--list" => asked.list = true,
                "--ignored" => asked.ignored = true,
                "--exact" => asked.exact = true,
                "--skip" => asked.skipped.extend(args.next()),
                "--format" | "--color" | "--test-threads" | "--logfile" | "-Z" => {
                    args.next();
                }
                flag if flag.starts_with('-') => {}
                _ => asked.filters.push(arg),
            }
        }
        asked
    }

    fn includes(&self, name: &str) -> bool {
        let fits = |filter: &String| {
            if self.exact {
                name == filter
            } else {
                name.contains(&**filter)
            }
        };
        let is_asked_for = self.filters.is_empty() || self.filters.iter().any(fits);
        // No test is ignored by default.
        is_asked_for && !self.ignored && !self.skipped.iter().any(fits)
    }
}

const SHUTDOWN: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(20);
