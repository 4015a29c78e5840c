"""Third station: transitions move z_{k-1} to z_k and score the way there (q_k) and back
(r_{k-1}).
"""
