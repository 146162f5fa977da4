//! Converts access rules from Python, and refusals to Python.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyDict;
use router_core::{PathPattern, TokenHash};
use router_net::ingress::Access;

use crate::tls::{names, value_error};

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct AccessRule {
    rule: router_core::AccessRule,
}

#[pymethods]
impl AccessRule {
    #[new]
    #[pyo3(signature = (*, name, paths, identities = None, token_hashes = None, anonymous = false, applications = None))]
    fn new(
        name: String,
        paths: Vec<String>,
        identities: Option<Vec<String>>,
        token_hashes: Option<Vec<Vec<u8>>>,
        anonymous: bool,
        applications: Option<Vec<String>>,
    ) -> PyResult<Self> {
        let paths = paths.iter().map(|path| PathPattern::parse(path).map_err(value_error));
        let rule = router_core::AccessRule {
            name,
            paths: paths.collect::<PyResult<_>>()?,
            applications,
            identities: identities.map(names).transpose()?,
            token_hashes: token_hashes.map(hashes).transpose()?,
            anonymous,
        };
        Ok(Self { rule })
    }
}

#[pyclass(frozen, module = "pyserve._router")]
#[derive(Debug)]
pub(crate) struct AccessPolicy {
    pub(crate) access: Arc<Access>,
}

#[pymethods]
impl AccessPolicy {
    #[new]
    #[pyo3(signature = (rules, *, default_allow = false))]
    fn new(rules: Vec<PyRef<'_, AccessRule>>, default_allow: bool) -> PyResult<Self> {
        Ok(Self { access: Access::new(policy(&rules, default_allow)?) })
    }

    #[pyo3(signature = (rules, *, default_allow = false))]
    fn replace(&self, rules: Vec<PyRef<'_, AccessRule>>, default_allow: bool) -> PyResult<()> {
        self.access.replace(policy(&rules, default_allow)?);
        Ok(())
    }

    fn take_refusals(&self) -> Vec<(u32, String, String, Vec<String>, bool)> {
        let refusals = self.access.take_refusals().into_iter();
        refusals
            .map(|one| (one.code.number().into(), one.path, one.peer, one.names, one.had_token))
            .collect()
    }

    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let dict = PyDict::new(py);
        for (name, value) in self.access.stats() {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }
}

fn policy(
    rules: &[PyRef<'_, AccessRule>],
    default_allow: bool,
) -> PyResult<router_core::AccessPolicy> {
    let rules = rules.iter().map(|rule| rule.rule.clone()).collect();
    router_core::AccessPolicy::new(rules, default_allow).map_err(value_error)
}

fn hashes(values: Vec<Vec<u8>>) -> PyResult<Vec<TokenHash>> {
    let sized = values.into_iter().map(TokenHash::try_from);
    sized.collect::<Result<_, _>>().map_err(|wrong| {
        value_error(format!("a SHA-256 has 32 bytes, this one has {}", wrong.len()))
    })
}
