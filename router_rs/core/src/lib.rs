//! Decisions of the router.
