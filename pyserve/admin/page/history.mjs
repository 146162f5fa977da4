// The last values of each deployment, for small lines; kept by the page alone, while it is open.

const KEPT = 90;
const NAMES = ["calls_per_second", "p99_s", "running"];

export class History {
  #values = new Map();

  add(overview) {
    for (const deployment of overview.deployments) {
      for (const name of NAMES) {
        const key = `${deployment.target} ${name}`;
        const values = this.#values.get(key) ?? [];
        values.push(deployment[name]);
        this.#values.set(key, values.slice(-KEPT));
      }
    }
  }

  of(target, name = "calls_per_second") {
    return this.#values.get(`${target} ${name}`) ?? [];
  }
}
