"""The formulas of the memo as plain loops: slow, and easy to compare with the paper.

[1] T. Hofmann and J. Puzicha, Statistical Models for Co-occurrence Data, A.I. Memo 1625, MIT, 1998.
Counts are n (N, M); all parameters are dense arrays. Nothing here is vectorised on purpose.
"""

import numpy as np


def kl(p, q):
    """Kullback-Leibler divergence in nats, 0 log 0 = 0."""
    return sum(a * np.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def entropy_against(Q, prior):
    return sum(kl(row, prior) for row in Q)


# ---- SMM, Eq. 6 to 9, tempered as R ~ pi (p q)^beta


def smm_responsibility(pi, p, q, i, j, beta=1.0):
    joint = np.array([pi[k] * (p[k, i] * q[k, j]) ** beta for k in range(len(pi))])
    return joint / joint.sum()


def smm_step(n, pi, p, q, beta=1.0):
    """One EM step; returns the new (pi, p, q) and F = -beta E[log pq] + KL(R || pi) at the old ones."""
    N, M = n.shape
    K = len(pi)
    new_pi, new_p, new_q = np.zeros(K), np.zeros((K, N)), np.zeros((K, M))
    F = 0.0
    for i in range(N):
        for j in range(M):
            if n[i, j] == 0:
                continue
            R = smm_responsibility(pi, p, q, i, j, beta)
            F += n[i, j] * kl(R, pi)
            for k in range(K):
                F -= n[i, j] * beta * R[k] * np.log(p[k, i] * q[k, j])
                new_pi[k] += n[i, j] * R[k]
                new_p[k, i] += n[i, j] * R[k]
                new_q[k, j] += n[i, j] * R[k]
    for k in range(K):
        new_p[k] /= new_pi[k]
        new_q[k] /= new_pi[k]
    return new_pi / n.sum(), new_p, new_q, F


def smm_likelihood(n, pi, p, q):
    """Eq. 2."""
    N, M = n.shape
    return sum(
        n[i, j] * np.log(sum(pi[k] * p[k, i] * q[k, j] for k in range(len(pi))))
        for i in range(N)
        for j in range(M)
        if n[i, j]
    )


def smm_predictive_posteriors(n, R, beta=1.0):
    """Eq. 61 without its diagonal: every occurrence is left out of the sums that predict it."""
    N, M = n.shape
    K = R.shape[2]
    out = np.zeros_like(R)
    for i in range(N):
        for j in range(M):
            if n[i, j] == 0:
                continue
            for k in range(K):
                row = sum(n[i, b] * R[i, b, k] for b in range(M)) - R[i, j, k]
                column = sum(n[a, j] * R[a, j, k] for a in range(N)) - R[i, j, k]
                total = sum(n[a, b] * R[a, b, k] for a in range(N) for b in range(M)) - R[i, j, k]
                out[i, j, k] = total * (row / total * column / total) ** beta
            s = out[i, j].sum()
            out[i, j] = out[i, j] / s if s > 0 else 1.0 / K
    return out


# ---- PMM, Eq. 16, 18, 19


def pmm_step(n, pi, p, q, beta=1.0):
    N, M = n.shape
    K, L = pi.shape
    new_pi, new_p, new_q = np.zeros((K, L)), np.zeros((K, N)), np.zeros((L, M))
    F = 0.0
    for i in range(N):
        for j in range(M):
            if n[i, j] == 0:
                continue
            R = np.array([[pi[k, m] * (p[k, i] * q[m, j]) ** beta for m in range(L)] for k in range(K)])
            F -= n[i, j] * np.log(R.sum())
            R /= R.sum()
            for k in range(K):
                for m in range(L):
                    new_pi[k, m] += n[i, j] * R[k, m]
                    new_p[k, i] += n[i, j] * R[k, m]
                    new_q[m, j] += n[i, j] * R[k, m]
    new_p = np.array([row / row.sum() for row in new_p])
    new_q = np.array([row / row.sum() for row in new_q])
    return new_pi / n.sum(), new_p, new_q, F


# ---- ACM, Eq. 21, 23, 24, 29 to 32


def acm_scores(n, q):
    N, M = n.shape
    scores = np.zeros((N, len(q)))
    for i in range(N):
        for k in range(len(q)):
            scores[i, k] = sum(n[i, j] * np.log(q[k, j]) for j in range(M) if n[i, j])
    return scores


def acm_posteriors(n, q, rho, beta=1.0):
    scores = acm_scores(n, q)
    out = np.zeros_like(scores)
    for i in range(len(n)):
        top = max(scores[i])
        weights = [rho[k] * np.exp(beta * (scores[i, k] - top)) for k in range(len(rho))]
        out[i] = np.array(weights) / sum(weights)
    return out


def acm_hard(n, q):
    """Eq. 23: the nearest profile by Kullback-Leibler divergence."""
    out = np.zeros((len(n), len(q)))
    for i, row in enumerate(n):
        out[i, np.argmin([kl(row / row.sum(), q[k]) for k in range(len(q))])] = 1
    return out


def acm_profiles(n, Q, groups=None):
    """Eq. 24; with groups of columns, normalised in each of them."""
    N, M = n.shape
    groups = np.zeros(M, int) if groups is None else groups
    q = np.zeros((Q.shape[1], M))
    for k in range(Q.shape[1]):
        for j in range(M):
            total = sum(Q[i, k] * n[i, b] for i in range(N) for b in range(M) if groups[b] == groups[j])
            q[k, j] = sum(Q[i, k] * n[i, j] for i in range(N)) / total
    return q


def acm_free_energy(n, q, rho, Q, beta=1.0):
    return -beta * (Q * acm_scores(n, q)).sum() + entropy_against(Q, rho)


# ---- SCM, Eq. 42, 43, 48, 49 (with a plus in the exponent)


def scm_association(n, rows, columns):
    L = n.sum()
    K, G = rows.shape[1], columns.shape[1]
    joint = np.zeros((K, G))
    for i in range(n.shape[0]):
        for j in range(n.shape[1]):
            for k in range(K):
                for g in range(G):
                    joint[k, g] += n[i, j] * rows[i, k] * columns[j, g] / L
    return joint / np.outer(joint.sum(axis=1), joint.sum(axis=0)), joint


def scm_side(n, other, log_c, prior, beta=1.0):
    """Posteriors (N, K) of one side, the other (M, G) fixed; log_c is (K, G)."""
    out = np.zeros((n.shape[0], len(prior)))
    for i in range(n.shape[0]):
        h = [
            sum(n[i, j] * other[j, g] * log_c[k, g] for j in range(n.shape[1]) for g in range(other.shape[1]))
            for k in range(len(prior))
        ]
        weights = np.array([prior[k] * np.exp(beta * (h[k] - max(h))) for k in range(len(prior))])
        out[i] = weights / weights.sum()
    return out


def scm_free_energy(n, rows, columns, log_c, row_prior, column_prior, beta=1.0):
    F = entropy_against(rows, row_prior) + entropy_against(columns, column_prior)
    for i in range(n.shape[0]):
        for j in range(n.shape[1]):
            F -= beta * n[i, j] * (rows[i] @ log_c @ columns[j])
    return F


# ---- HACM, Eq. 53, 55 to 58; tau (N, K, V) is zero off the paths


def hacm_step(n, rho, tau, q, beta=1.0):
    """One EM step; returns (rho, tau of each row, tau of each cluster, q, Q)."""
    N, M = n.shape
    K, V = len(rho), len(q)
    Q = np.zeros((N, K))
    for i in range(N):
        logs = np.array(
            [
                sum(n[i, j] * np.log(sum(tau[i, k, v] * q[v, j] for v in range(V))) for j in range(M))
                for k in range(K)
            ]
        )
        weights = rho * np.exp(beta * (logs - logs.max()))
        Q[i] = weights / weights.sum()
    new_q, by_row, by_cluster = np.zeros((V, M)), np.zeros((N, K, V)), np.zeros((K, V))
    for i in range(N):
        for j in range(M):
            for k in range(K):
                joint = np.array([tau[i, k, v] * q[v, j] for v in range(V)])
                posterior = joint / joint.sum()
                for v in range(V):
                    new_q[v, j] += n[i, j] * posterior[v] * Q[i, k]
                    by_row[i, k, v] += n[i, j] * posterior[v]
                    by_cluster[k, v] += n[i, j] * posterior[v] * Q[i, k]
    seen = n.sum(axis=1) > 0
    by_row[seen] /= by_row[seen].sum(axis=2, keepdims=True)
    by_cluster = by_cluster / by_cluster.sum(axis=1, keepdims=True)
    return Q.mean(axis=0), by_row, by_cluster, new_q / new_q.sum(axis=1, keepdims=True), Q


# ---- Potts mean field, dense neighbourhood


def potts_free_energy(scores, Q, beta, strength, G):
    F = -beta * (Q * scores).sum()
    for row in Q:
        F += sum(a * np.log(a) for a in row if a > 0)
    return F - strength / 2 * sum(Q[:, k] @ G @ Q[:, k] for k in range(Q.shape[1]))
