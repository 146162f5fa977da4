//! The table as the controller's views make it.

mod models;
