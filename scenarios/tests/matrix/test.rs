//! What is run alone in a process: a cell of the matrix, or many abandoned calls in one of its columns.

use std::fmt;

use crate::column::Column;
use crate::ways::Way;
use crate::{immediate, soak};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Test {
    Cell(Way, Column),
    /// So many calls are abandoned while their handlers are at work.
    Soak(usize, Column),
    /// So many calls are abandoned as soon as they are started.
    Immediate(usize, Column),
}

impl Test {
    /// Every cell that applies, and a soak of every transport in both eras.
    pub(crate) fn all(calls: usize) -> Vec<Self> {
        let cells = Way::ALL
            .iter()
            .flat_map(|way| Column::all().map(|column| (*way, column)))
            .filter(|(way, column)| way.excuse(*column).is_none())
            .map(|(way, column)| Self::Cell(way, column));
        let soaks = soak::columns().map(|column| Self::Soak(calls, column));
        let immediate = immediate::columns().map(|column| Self::Immediate(IMMEDIATE, column));
        cells.chain(immediate).chain(soaks).collect()
    }

    pub(crate) async fn run(self) {
        match self {
            Self::Cell(way, column) => way.run(column).await,
            Self::Soak(calls, column) => soak::abandon(calls, column).await,
            Self::Immediate(calls, column) => {
                immediate::whatever_left_is_cancelled_and_nothing_else(calls, column).await
            }
        }
    }

    /// How many threads it needs. Where order is compared one is enough; where races are looked for it is not.
    pub(crate) fn threads(self) -> usize {
        match self {
            Self::Cell(..) | Self::Soak(..) => 1,
            Self::Immediate(..) => 2,
        }
    }

    /// Finds what [`Test::key`] names.
    pub(crate) fn find(key: &str) -> Option<Self> {
        let words: Vec<&str> = key.split(' ').collect();
        match words[..] {
            ["soak", calls, column] => Some(Self::Soak(calls.parse().ok()?, Column::find(column)?)),
            ["immediate", calls, column] => {
                Some(Self::Immediate(calls.parse().ok()?, Column::find(column)?))
            }
            [way, column] => Some(Self::Cell(Way::find(way)?, Column::find(column)?)),
            _ => None,
        }
    }

    /// How a command line names it.
    pub(crate) fn key(self) -> String {
        match self {
            Self::Cell(way, column) => format!("{} {}", way.key(), column.key()),
            Self::Soak(calls, column) => format!("soak {calls} {}", column.key()),
            Self::Immediate(calls, column) => format!("immediate {calls} {}", column.key()),
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cell(way, column) => write!(f, "{way} ({column})"),
            Self::Soak(calls, column) => {
                write!(f, "{calls} abandoned calls leave nothing behind ({column})")
            }
            // The path of the function, by which `cargo xtask ci` finds the tests that `sentences.txt` names.
            Self::Immediate(calls, column) => {
                let path = "immediate::whatever_left_is_cancelled_and_nothing_else";
                write!(f, "{path} ({calls} calls, {column})")
            }
        }
    }
}

const IMMEDIATE: usize = 1000;
