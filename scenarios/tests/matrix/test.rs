//! The tests that each run in a separate process: a cell of the matrix, or many abandoned calls in one of its columns.

use std::fmt;

use crate::abandonment::Abandonment;
use crate::bridged::BridgedCell;
use crate::column::Column;
use crate::{immediate, soak};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Test {
    Cell(Abandonment, Column),
    /// A cell with a bridge in the middle.
    Bridged(BridgedCell),
    /// Abandons this many calls while their handlers are running.
    Soak(usize, Column),
    /// Abandons this many calls right after they were started.
    Immediate(usize, Column),
}

impl Test {
    /// Returns every applicable cell, and the soak tests of every transport in both eras.
    pub(crate) fn all(calls: usize) -> Vec<Self> {
        let cells = Abandonment::ALL
            .iter()
            .flat_map(|abandonment| Column::all().map(|column| (*abandonment, column)))
            .filter(|(abandonment, column)| abandonment.not_applicable(*column).is_none())
            .map(|(abandonment, column)| Self::Cell(abandonment, column));
        let soaks = soak::columns().map(|column| Self::Soak(calls, column));
        let immediate = immediate::columns().map(|column| Self::Immediate(IMMEDIATE, column));
        let bridged = BridgedCell::all().map(Self::Bridged);
        cells.chain(bridged).chain(immediate).chain(soaks).collect()
    }

    pub(crate) async fn run(self) {
        match self {
            Self::Cell(abandonment, column) => abandonment.run(column).await,
            Self::Bridged(cell) => cell.run().await,
            Self::Soak(calls, column) => soak::abandon(calls, column).await,
            Self::Immediate(calls, column) => {
                immediate::every_sent_request_is_cancelled_exactly_once(calls, column).await
            }
        }
    }

    /// The number of worker threads: one where the order of frames is compared, two where the test provokes races.
    pub(crate) fn threads(self) -> usize {
        match self {
            Self::Cell(..) | Self::Bridged(_) | Self::Soak(..) => 1,
            Self::Immediate(..) => 2,
        }
    }
}

impl fmt::Display for Test {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cell(abandonment, column) => write!(f, "{} ({column})", abandonment.name),
            Self::Bridged(cell) => write!(f, "{cell}"),
            Self::Soak(calls, column) => {
                write!(f, "{calls} abandoned calls leak nothing ({column})")
            }
            // The path of the function: `cargo xtask ci` looks it up for the tests listed in `sentences.txt`.
            Self::Immediate(calls, column) => {
                let path = "immediate::every_sent_request_is_cancelled_exactly_once";
                write!(f, "{path} ({calls} calls, {column})")
            }
        }
    }
}

const IMMEDIATE: usize = 1000;
