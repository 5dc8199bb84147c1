//! A test runner with the part of the libtest interface that cargo and nextest use.

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

/// Runs or lists the tests that the command line selects.
pub(crate) fn run(tests: &[Test]) -> ExitCode {
    let options = TestArgs::from_args(std::env::args().skip(1));
    let selected = || tests.iter().filter(|test| options.includes(test.name));
    if options.list {
        selected().for_each(|test| println!("{}: test", test.name));
        return ExitCode::SUCCESS;
    }
    println!("\nrunning {} tests", selected().count());
    let failed = selected().filter(|test| !passes(test)).count();
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
        runtime.shutdown_timeout(SHUTDOWN); // does not wait for blocked threads of a failed test
        ran.expect("the test exceeded its time limit");
    });
    let passed = ran.join().is_ok();
    println!(
        "test {} ... {}",
        test.name,
        if passed { "ok" } else { "FAILED" }
    );
    passed
}

/// The parsed command line.
#[derive(Default)]
struct TestArgs {
    list: bool,
    ignored: bool,
    exact: bool,
    filters: Vec<String>,
    skipped: Vec<String>,
}

impl TestArgs {
    fn from_args(mut args: impl Iterator<Item = String>) -> Self {
        let mut options = Self::default();
        while let Some(arg) = args.next() {
            match &*arg {
                "--list" => options.list = true,
                "--ignored" => options.ignored = true,
                "--exact" => options.exact = true,
                "--skip" => options.skipped.extend(args.next()),
                "--format" | "--color" | "--test-threads" | "--logfile" | "-Z" => {
                    args.next();
                }
                flag if flag.starts_with('-') => {}
                _ => options.filters.push(arg),
            }
        }
        options
    }

    fn includes(&self, name: &str) -> bool {
        let matches = |filter: &String| {
            if self.exact {
                name == filter
            } else {
                name.contains(&**filter)
            }
        };
        let is_selected = self.filters.is_empty() || self.filters.iter().any(matches);
        // No test is ignored by default.
        is_selected && !self.ignored && !self.skipped.iter().any(matches)
    }
}

const SHUTDOWN: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(90);
